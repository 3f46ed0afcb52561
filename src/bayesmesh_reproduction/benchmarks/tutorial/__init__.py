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
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh_reproduction.benchmarks.harness import Case, Options, Outcome, compare, ratio
from bayesmesh_reproduction.benchmarks.history import write_rows, write_store
from bayesmesh_reproduction.benchmarks.process import Contender, ask_once
from bayesmesh_reproduction.layout import BenchmarkLayout

NUM_DEVICES = 8

ON_DEVICES = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "true",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={NUM_DEVICES}",
}
"""Environment of a process with this many simulated devices."""

COARSE = {"step_size": 1.4, "num_steps": 1}
"""Steps so long that a third of the proposals is rejected; without the accept step the standard deviation would be 1.4."""


def run(options: Options) -> Outcome:
    """Sample, and evaluate numbers that must match exactly."""
    layout = options.layout
    draws, rounds = options.pick(1000, quick=50), options.pick(3, quick=1)
    with tempfile.TemporaryDirectory() as folder:
        saved = {name: Path(folder) / f"{name}.npy" for name in ("chains", "coarse")}
        options_of_ours = {"package": "ours", "saved": str(saved["chains"])}
        ours = Contender("ours", f"{__name__}.devices:Chains", options_of_ours, variables=ON_DEVICES)
        tfp = ours._replace(name="tfp", options={"package": "tfp"})
        coarse = ours._replace(options={**options_of_ours, "saved": str(saved["coarse"]), **COARSE})
        work = f"{__name__}.precision:Trajectories"
        alone = {**ON_DEVICES, "XLA_FLAGS": ""}
        precision = [Contender(name, work, {"precision": name}, variables=alone) for name in ("highest", "bfloat16")]
        cases = [
            Case({"work": "chains", "draws": draws}, [ours, tfp]),
            Case({"work": "coarse steps", "draws": draws}, [coarse]),
            Case({"work": "precision", "draws": options.pick(20, quick=3)}, precision),
        ]
        measured = compare(cases, options.limits(rounds=rounds))
        # A quick run has fewer draws than published, and keeps the results of earlier runs.
        for name, path in saved.items():
            if path.exists() and not options.is_quick:
                store_chains(layout, name, np.load(path))
    collectives = Contender("collectives", f"{__name__}.devices:Collectives", variables=ON_DEVICES)
    for table, rows in ask_once(collectives, {"seed": time.time_ns() % 2**31}).items():
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
    stores = [layout.folder / f"tutorial-{name}.zarr"]
    write_store(stores[0], {"state": merged}, (CHAIN, DRAW, "coordinate"))
    if name == "chains":
        stores.append(layout.folder / "tutorial-devices.zarr")
        write_store(stores[1], {"state": states}, ("device", DRAW, CHAIN, "coordinate"))
    write_rows(layout.table(f"tutorial-{name}"), moments(merged), stores)


def moments(draws: np.ndarray) -> list[dict[str, object]]:
    """Return mean and standard deviation of each coordinate with their Monte Carlo standard errors.

    The error of the standard deviation is that of the variance divided by twice the standard deviation.

    Args:
        draws: (chain, draw, coordinate).
    """
    table = convergence_table(draws)
    squares = convergence_table((draws - table["mean"]) ** 2)
    table["mcse_sd"] = squares["mcse_mean"] / (2 * table["sd"])
    return [
        {"coordinate": i, **{name: float(values[i]) for name, values in table.items()}} for i in range(draws.shape[-1])
    ]
