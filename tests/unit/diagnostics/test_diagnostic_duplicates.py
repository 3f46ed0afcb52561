"""A latent that is also a summary is listed once, and another quantity of its name stays."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bayesmesh.diagnostics.convergence import STATISTICS
from bayesmesh.diagnostics.diagnostic_duplicates import repeats


def table(variable: str, index: list[str], values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"variable": variable, "index": index, **dict.fromkeys(STATISTICS, values)})


def test_only_latents_whose_statistics_are_those_of_a_summary_go() -> None:
    summaries = pd.concat([
        table("sigma", [""], [1.5]), table("still", ["0", "1", "2"], [np.nan, 2.0, 3.0]), table("biases", ["0", "1"], [0.5, 0.6]),
    ])  # fmt: skip
    assert repeats(table("sigma", [""], [1.5]), summaries)
    assert repeats(table("still", ["0", "2"], [np.nan, 3.0]), summaries)
    assert not repeats(table("biases", ["0", "1"], [0.5, 0.7]), summaries)
    assert not repeats(table("weights", ["0"], [1.5]), summaries)
    assert not repeats(table("sigma", ["0"], [1.5]), summaries), "another shape"
