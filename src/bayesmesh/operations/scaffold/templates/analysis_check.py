"""The moments of `new_analysis`."""

from __future__ import annotations

import functools
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from bayesmesh.analyses.base import Subject
from bayesmesh.config.declarations import declared
from bayesmesh.operations.scaffold.templates.analysis import NewAnalysis, Options
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior


def test_moments_are_those_of_the_draws(tmp_path: Path) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    draws = np.random.default_rng(1).standard_normal((2, 5, 3))
    group = open_group(layout.posterior, "w").create_group("posterior")
    write_array(group, "x", draws, ("chain", "draw", "dim"))
    files = declared("new_analysis").files(tmp_path)
    files["moments.csv"].parent.mkdir()

    analysis = NewAnalysis(Options())
    # Blocks of one draw of all chains, as if each were large.
    small = functools.partialmethod(Posterior.blocks, block_bytes=1)
    with mock.patch.object(Posterior, "blocks", small):
        analysis.run(Subject(layout), {}, files)
    table = pd.read_csv(files["moments.csv"])
    np.testing.assert_allclose(table[["mean", "sd"]].to_numpy()[0], [draws.mean(), draws.std()])
    section = analysis.section(files)
    assert section is not None
    assert ">x</th>" in section.body
