"""Store the last states of chains and a table of their moments, which claims check."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from bayesmesh.files import atomic_folder
from bayesmesh.reproduction.benchmarks.benchmark_table import write_rows
from bayesmesh.reproduction.benchmarks.metropolis.last_states import STATES
from bayesmesh.reproduction.benchmarks.process import Contender
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW, BenchmarkLayout

__all__ = ["keep_states", "write_moments"]


def keep_states(contenders: Iterable[Contender], folder: Path, scale: str) -> list[Contender]:
    """Return contenders that also save their last states below a folder.

    Args:
        contenders: the contenders.
        folder: the folder.
        scale: name of the scale of the proposal.
    """
    return [
        c._replace(variables={**c.variables, STATES: str(folder / f"{scale} {c.name}.npy")}) for c in contenders
    ]  # fmt: skip


def write_moments(layout: BenchmarkLayout, folder: Path) -> None:
    """Store the states that contenders saved as ``metropolis-states.zarr``, and their moments as ``metropolis-moments.csv``.

    Args:
        layout: files of the benchmarks.
        folder: folder with the states.
    """
    found = {path.stem: np.load(path, allow_pickle=False) for path in sorted(folder.glob("*.npy"))}
    store = layout.folder / "metropolis-states.zarr"
    with atomic_folder(store) as partial:
        group = open_group(partial, "w").create_group("posterior")
        for name, states in found.items():
            write_array(group, re.sub(r"\W+", "_", name), states[:, None], (CHAIN, DRAW))
    write_hashes(store, {})
    rows = [{**_names(name), **_moments(states)} for name, states in found.items()]
    write_rows(layout.table("metropolis-moments"), rows, [store.with_suffix(".sha256")])


def _names(name: str) -> dict[str, str]:
    scale, _, contender = name.partition(" ")
    return {"scale": scale, "contender": contender}


def _moments(states: np.ndarray) -> Mapping[str, float]:
    """Return mean and variance of independent chains' states (chain,), with their standard errors."""
    centred = states - states.mean()
    variance, fourth = float(np.mean(centred**2)), float(np.mean(centred**4))
    return {
        "mean": float(states.mean()),
        "mean_se": math.sqrt(variance / states.size),
        "variance": variance,
        "variance_se": math.sqrt((fourth - variance**2) / states.size),
    }
