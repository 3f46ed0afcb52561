"""Chains that continue others go on only where both origins agree and the metric fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.config.relatives import LEAST_WARMUP
from bayesmesh.kernels.adaptation.warmup import readapted_begin
from bayesmesh.workflow.stages.relative import Misled, check_continued


def _store(folder: Path, lp: np.ndarray, step_size: float) -> Any:
    root = zarr.open_group(str(folder / "draws.zarr"), mode="w", zarr_format=3)
    root.require_group("warmup_sample_stats").create_array("lp", data=lp)
    return SimpleNamespace(folder=folder, commits=lambda: [SimpleNamespace(facts={"step_size": step_size})])


LP = np.random.default_rng(0).normal(size=(4, 100))


def test_chains_in_two_places_a_lost_chain_and_another_scale_are_noticed(tmp_path: Path) -> None:
    check_continued(_store(tmp_path, LP, 0.4), 0.5)
    # Where they came from does not count.
    check_continued(_store(tmp_path, LP - 1e3 * (np.arange(100) < 50), 0.4), 0.5)
    apart, lost = LP.copy(), LP.copy()
    apart[2:] -= 50
    lost[3, 60:] = np.nan
    for lp, why in ((apart, "and of others differ"), (lost, "and of others are not finite")):
        with pytest.raises(Misled, match=f"log densities of its chains {why}"):
            check_continued(_store(tmp_path, lp, 0.4), 0.5)
    with pytest.raises(Misled, match="metric does not fit"):
        check_continued(_store(tmp_path, LP, 0.2), 0.5)


def test_the_shortest_warmup_that_is_continued_tells_agreement_from_disagreement(tmp_path: Path) -> None:
    lp = LP[:, : LEAST_WARMUP - int(readapted_begin(LEAST_WARMUP))].copy()
    check_continued(_store(tmp_path, lp, 0.4), 0.5)
    lp[2:] -= 50
    with pytest.raises(Misled, match="differ"):
        check_continued(_store(tmp_path, lp, 0.4), 0.5)
