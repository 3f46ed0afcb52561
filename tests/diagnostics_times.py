"""Not a test: processor time of convergence statistics per scalar, beside arviz_stats and an earlier version of them.

    PYTHONPATH=src:tests python -m diagnostics_times [--scalars 20000] [--former COMMIT]

Contenders take turns in one process, and the fastest of three rounds counts. Values of 500 random scalars are compared with
arviz_stats. `--former` takes the package of a commit, which must have the function `convergence_table`.
"""

from __future__ import annotations

import argparse
import importlib
import io
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats
from scipy.signal import lfilter

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.efficiency import local_ess, nested_r_hat, quantile_ess, quantile_mcse
from bayesmesh.running.machine import machine_name, usable_cores

NUM_COMPARED, NUM_ROUNDS, NUM_INTERVALS = 500, 3, 10
AXES = {"chain_axis": 0, "draw_axis": 1}
EDGES = np.linspace(0, 1, NUM_INTERVALS + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalars", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--former", metavar="COMMIT", help="commit to compare with")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # arviz_stats divides by zero
    print(f"{machine_name()}; {given.chains} chains x {given.draws} draws; us per scalar, processor and wall")
    with tempfile.TemporaryDirectory() as folder:
        former = {"former": _former(given.former, Path(folder))} if given.former else {}
        for rho in (0.0, 0.5, 0.9):
            x = _chains(rho, (given.chains, given.draws, given.scalars))
            _compare_times(f"autocorrelation {rho}", x, former)
    _compare_values(x)


def _compare_times(title: str, x: np.ndarray, former: dict[str, Callable[[np.ndarray], object]]) -> None:
    superchains = np.arange(len(x)) // max(1, len(x) // 2)
    cores = usable_cores()
    contenders: dict[str, tuple[Callable[[np.ndarray], object], np.ndarray]] = {
        "arviz_stats": (_by_arviz, x[:, :, :200]),
        **{name: (function, x) for name, function in former.items()},
        "ours, 1 thread": (convergence_table, x),
        f"ours, {cores} threads": (lambda draws: convergence_table(draws, num_threads=cores), x),
        "new: five quantiles": (lambda draws: quantile_ess(draws, [0.05, 0.25, 0.5, 0.75, 0.95]), x),
        f"new: {NUM_INTERVALS} intervals": (lambda draws: local_ess(draws, NUM_INTERVALS), x),
        "new: nested R-hat": (lambda draws: nested_r_hat(draws, superchains), x),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(NUM_ROUNDS):
        for name, (function, draws) in contenders.items():
            processor, wall = time.process_time(), time.perf_counter()
            function(draws)
            taken = (time.process_time() - processor, time.perf_counter() - wall)
            per_scalar = tuple(1e6 * seconds / draws.shape[2] for seconds in taken)
            best[name] = min(best.get(name, per_scalar), per_scalar)
    ours = best["ours, 1 thread"][0]
    for name, (processor, wall) in best.items():
        print(f"{title:20} {name:22} {processor:9.1f} {wall:9.1f}   {processor / ours:6.2f} times ours on one core")


def _by_arviz(x: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "mcse_mean": array_stats.mcse(x, **AXES),
        "r_hat": array_stats.rhat(x, **AXES),
        "ess_bulk": array_stats.ess(x, method="bulk", **AXES),
        "ess_tail": array_stats.ess(x, method="tail", prob=(0.05, 0.95), **AXES),
    }


def _compare_values(x: np.ndarray) -> None:
    chosen = np.random.default_rng(1).choice(x.shape[2], min(NUM_COMPARED, x.shape[2]), replace=False)
    part = x[:, :, chosen].astype(np.float64)
    table, superchains = convergence_table(part), np.arange(len(x)) // max(1, len(x) // 2)
    pairs = {name: (table[name], expected) for name, expected in _by_arviz(part).items()}
    quantiles, errors, local = (
        quantile_ess(part, [0.25])[0],
        quantile_mcse(part, [0.25])[0],
        local_ess(part, NUM_INTERVALS)[3],
    )
    pairs["ess of a quantile"] = quantiles, array_stats.ess(part, method="quantile", prob=0.25, **AXES)
    pairs["mcse of a quantile"] = errors, array_stats.mcse(part, method="quantile", prob=0.25, **AXES)
    pairs["ess of an interval"] = local, array_stats.ess(part, method="local", prob=(EDGES[3], EDGES[4]), **AXES)
    pairs["nested R-hat"] = nested_r_hat(part, superchains), array_stats.rhat_nested(part, superchains, **AXES)
    for name, (found, expected) in pairs.items():
        print(
            f"{name:20} largest relative difference of {len(chosen)} scalars {np.abs(found / expected - 1).max():.1e}"
        )


def _former(commit: str, folder: Path) -> Callable[[np.ndarray], object]:
    """Return `convergence_table` of a commit, imported beside the present package."""
    done = subprocess.run(["git", "archive", commit, "src/bayesmesh"], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    present = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "bayesmesh"}
    sys.path.insert(0, str(folder / "src"))
    try:
        function: Callable[[np.ndarray], object] = importlib.import_module(
            "bayesmesh.diagnostics.convergence"
        ).convergence_table
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.partition(".")[0] == "bayesmesh"]:
            del sys.modules[name]
        sys.modules.update(present)
    return function


def _chains(rho: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return stationary AR(1) chains of unit variance, float32."""
    noise = np.random.default_rng(0).normal(size=shape) * np.sqrt(1 - rho**2)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1).astype(np.float32)


if __name__ == "__main__":
    main()
