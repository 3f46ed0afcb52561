"""Summarise the last states of every contender, and store them with their moments, which claims check."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh_reproduction.benchmarks.history import write_rows, write_store
from bayesmesh_reproduction.benchmarks.metropolis.target import MEAN, VARIANCE
from bayesmesh_reproduction.benchmarks.process import Contender
from bayesmesh_reproduction.benchmarks.worker import timed
from bayesmesh_reproduction.layout import BenchmarkLayout

STATES = "BAYESMESH_STATES"
"""Environment variable of a contender: file for its last states, if they are to be saved."""

_WARM_STEPS = 1_000_000
"""Number of steps above which a run is so long that warming up does not matter."""


class WalkCase(TypedDict):
    """A walk: its sizes, the scale of the proposal, and whether each chain's mean is kept."""

    chains: int
    samples: int
    scale: float
    keeps_means: bool


class JaxWalk:
    """Base of the contenders on JAX: times compilation, then warms up.

    NumPy's contenders import this module, so JAX is imported by the subclasses only.
    """

    is_wide = False
    """Whether float64 is enabled, whatever the environment says; the process belongs to one contender alone."""

    def start(self) -> None:
        """Put the first states on the devices, before compilation is timed."""
        raise NotImplementedError

    def compile(self) -> None:
        """Compile for `self.case`."""
        raise NotImplementedError

    def run(self, repeat: int) -> dict[str, object]:
        """Take all steps of all chains."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Run once, unless runs are long."""
        if self.case["chains"] * self.case["samples"] <= _WARM_STEPS:
            self.run(0)

    def prepare(self, case: WalkCase) -> dict[str, object]:
        """Compile ahead of time, and warm up."""
        import jax

        jax.config.update("jax_enable_x64", self.is_wide)
        self.case = case
        self.start()
        _, seconds = timed(self.compile)
        self.warm_up()
        # To 10 microseconds, so that doing nothing takes no time.
        return {
            "compile_s": round(seconds, 5),
            "platform": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
        }


def describe_states(last: ArrayLike, means: ArrayLike | None = None) -> dict[str, object]:
    """Return mean and variance of the last states over chains, and the effective sample size if means are given.

    Args:
        last: the last state of each chain (chain,).
        means: the mean of each chain (chain,).
    """
    last = np.asarray(last, dtype=np.float64)
    if STATES in os.environ:
        np.save(os.environ[STATES], last)
    found: dict[str, object] = {"mean": float(last.mean()), "variance": float(last.var())}
    if means is not None:
        found["ess"] = effective_sample_size(np.asarray(means, dtype=np.float64))
    return found


def effective_sample_size(means: np.ndarray) -> float:
    """Return the number of independent draws with the same error of the means, summed over chains.

    The variance of the mean of n independent draws is VARIANCE / n. The target's mean is used instead of that of the
    chains, to detect a sampler that has not left its start.

    Args:
        means: the mean of each chain, float64 (chain,).

    >>> float(round(effective_sample_size(np.array([MEAN - 1.0, MEAN + 1.0])), 4))
    19.4032
    """
    return float(means.size * VARIANCE / np.mean((means - MEAN) ** 2))


def keep_states(contenders: Iterable[Contender], folder: Path, scale: str) -> list[Contender]:
    """Return contenders that also save their last states below a folder.

    Args:
        contenders: the contenders.
        folder: the folder.
        scale: name of the scale of the proposal.
    """
    saved = ((c, {STATES: str(folder / f"{scale} {c.name}.npy")}) for c in contenders)
    return [c._replace(variables={**c.variables, **variable}) for c, variable in saved]


def write_moments(layout: BenchmarkLayout, folder: Path) -> None:
    """Store the states that contenders saved as ``metropolis-states.zarr``, and their moments as ``metropolis-moments.csv``.

    Args:
        layout: files of the benchmarks.
        folder: folder with the states.
    """
    found = {path.stem: np.load(path, allow_pickle=False) for path in sorted(folder.glob("*.npy"))}
    arrays = {re.sub(r"\W+", "_", name): states[:, None] for name, states in found.items()}
    store = layout.folder / "metropolis-states.zarr"
    write_store(store, arrays, (CHAIN, DRAW))
    write_rows(layout.table("metropolis-moments"), [_moments(*item) for item in found.items()], [store])


def _moments(name: str, states: np.ndarray) -> dict[str, object]:
    """Return mean and variance of independent chains' states (chain,), with their standard errors."""
    scale, _, contender = name.partition(" ")
    mean = float(states.mean())
    variance, fourth = (float(np.mean((states - mean) ** power)) for power in (2, 4))
    mean_se, variance_se = (math.sqrt(v / states.size) for v in (variance, fourth - variance**2))
    return {
        "scale": scale, "contender": contender, "mean": mean, "mean_se": mean_se, "variance": variance,
        "variance_se": variance_se,
    }  # fmt: skip
