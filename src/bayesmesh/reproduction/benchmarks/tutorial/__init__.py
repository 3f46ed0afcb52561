"""Rerun the introductory examples of the tutorial "Distributed inference with JAX" on eight simulated devices.

A sum over devices, independent chains on devices, distributions with parts on different devices, and the effect of
low-precision matrix products on trajectories. Reference: TensorFlow Probability, "Distributed inference with JAX".
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.files import atomic_folder
from bayesmesh.reproduction.benchmarks.benchmark_table import write_rows
from bayesmesh.reproduction.benchmarks.harness import Case, Options, Outcome, compare, ratio
from bayesmesh.reproduction.benchmarks.process import Contender, ask_once
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW, BenchmarkLayout

__all__ = ["NUM_DEVICES", "run", "store_chains"]

NUM_DEVICES = 8

ON_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "true",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={NUM_DEVICES}",
}
"""Environment of a process with this many simulated devices."""

ON_ONE_DEVICE = {**ON_DEVICES, "XLA_FLAGS": ""}

COARSE = {"step_size": 1.4, "num_steps": 1}
"""Steps so long that a third of the proposals is rejected; without the accept step the standard deviation would be 1.4."""

_LIMIT_S = 120.0


def run(options: Options) -> Outcome:
    """Sample, and evaluate numbers that must match exactly."""
    layout = options.layout
    draws, rounds = options.pick(1000, quick=50), options.pick(3, quick=1)
    with tempfile.TemporaryDirectory() as folder:
        saved = {name: Path(folder) / f"{name}.npy" for name in ("chains", "coarse")}
        ours = Contender("ours", f"{__name__}.chains:Ours", {"saved": str(saved["chains"])}, variables=ON_DEVICES)
        chains = [ours, Contender("tfp", f"{__name__}.chains:Tfp", {}, variables=ON_DEVICES)]
        coarse = ours._replace(options={"saved": str(saved["coarse"]), **COARSE})
        work = f"{__name__}.precision:Trajectories"
        precision = [
            Contender(name, work, {"precision": name}, variables=ON_ONE_DEVICE) for name in ("highest", "bfloat16")
        ]
        cases = [
            Case({"work": "chains", "draws": draws}, chains),
            Case({"work": "coarse steps", "draws": draws}, [coarse]),
            Case({"work": "precision", "draws": options.pick(20, quick=3)}, precision),
        ]
        measured = compare(cases, options.limits(rounds=rounds))
        # A quick run has fewer draws than published, and keeps the results of earlier runs.
        for name, path in saved.items():
            if path.exists() and not options.is_quick:
                store_chains(layout, name, np.load(path))
    for table, rows in _facts().items():
        write_rows(layout.table(f"tutorial-{table}"), rows)
    ratios = [ratio(measured, {"work": "chains"}, "ours", against="tfp")]
    return Outcome([m.row() for m in measured], ratios, ("acceptance",))


def store_chains(layout: BenchmarkLayout, name: str, states: np.ndarray) -> None:
    """Store states per device and merged, and a table of their moments.

    Args:
        layout: files of the benchmarks.
        name: ``chains``, or another run of them.
        states: (device, draw, chain, coordinate).
    """
    merged = np.moveaxis(states, 2, 1).reshape(-1, states.shape[1], states.shape[3])
    of_chains = layout.folder / f"tutorial-{name}.zarr"
    if name == "chains":
        _write_store(layout.folder / "tutorial-devices.zarr", states, ("device", DRAW, CHAIN, "coordinate"))
    _write_store(of_chains, merged, (CHAIN, DRAW, "coordinate"))
    write_rows(layout.table(f"tutorial-{name}"), moments(merged), [of_chains.with_suffix(".sha256")])


def _write_store(path: Path, values: np.ndarray, dims: tuple[str, ...]) -> None:
    with atomic_folder(path) as partial:
        write_array(open_group(partial, "w").create_group("posterior"), "state", values, dims)
    write_hashes(path, {})


def moments(draws: np.ndarray) -> list[dict[str, object]]:
    """Return mean and standard deviation of each coordinate with their Monte Carlo standard errors.

    The error of the standard deviation is that of the variance divided by twice the standard deviation.

    Args:
        draws: (chain, draw, coordinate).
    """
    of_draws = convergence_table(draws)
    of_squares = convergence_table((draws - of_draws["mean"]) ** 2)
    rows: list[dict[str, object]] = []
    for coordinate in range(draws.shape[-1]):
        row = {name: float(values[coordinate]) for name, values in of_draws.items()}
        rows.append(
            {"coordinate": coordinate, **row, "mcse_sd": float(of_squares["mcse_mean"][coordinate]) / (2 * row["sd"])}
        )
    return rows


def _facts() -> dict[str, list[dict[str, object]]]:
    """Return the rows of sums and of densities over devices."""
    collectives = Contender("collectives", f"{__name__}.collectives:Collectives", variables=ON_DEVICES)
    return ask_once(collectives, {"seed": time.time_ns() % 2**31}, _LIMIT_S)
