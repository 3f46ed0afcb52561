"""Chains that continue others go on only where both origins agree and the metric fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr

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
    for lp in (apart, lost):
        with pytest.raises(Misled, match="log densities"):
            check_continued(_store(tmp_path, lp, 0.4), 0.5)
    with pytest.raises(Misled, match="metric does not fit"):
        check_continued(_store(tmp_path, LP, 0.2), 0.5)
