"""The rows of `new_source`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.operations.scaffold.templates.source import NewSource, Options


def test_rows_follow_the_options(tmp_path: Path) -> None:
    rows = NewSource(Options(num_rows=5)).read(tmp_path).rows
    assert rows["x"].shape == (5, 2)
    other = NewSource(Options(num_rows=5, seed=1)).read(tmp_path).rows
    assert not np.array_equal(rows["x"][:], other["x"][:])


def test_rows_are_standard_normal(tmp_path: Path) -> None:
    x = NewSource(Options(num_rows=10_000)).read(tmp_path).rows["x"][:]
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(x.std(axis=0), 1, atol=0.05)
