"""Effective draws a second of `glm` with its defaults against NumPyro's NUTS and nutpie, on the tables that have a NumPyro model.

    PYTHONPATH=src:tests:tests/support .venv/bin/python -m tabular.peers [NAME ...]

The samplers take turns on a table, each with its compiled program in a process of its own. Counted are warmup and draws; compilation is
shown apart. The number of effective draws is the smallest among the quantities of the reference, of bulk and tail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import programs
from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.diagnostics.convergence import convergence_table
from posteriors.judging import run
from tabular.runs import named_draws, read_case, reference
from tabular.written_out import MODELS

ROUNDS = 3
LEAST_MEDIAN, LEAST = 1.3, 0.5
"""Ratios to the better of the others: the median over tables, and that of each."""

PEERS = {"numpyro": "NumPyro's NUTS", "nutpie": "nutpie, low rank"}
OTHERS = Path(__file__).with_name("others.py")


class Contender(NamedTuple):
    """A sampler of one table: seconds of compilation, and seed -> draws of each quantity, and seconds."""

    compilation: float
    sample: Callable[[int], tuple[Mapping[str, np.ndarray], float]]


def ours(name: str, folder: Path) -> Contender:
    """Compile the programs of an experiment with default settings."""
    sampling, case = SamplingSettings(), read_case(name, folder)
    begin = time.perf_counter()
    built = programs.build(
        case, "nuts", num_chains=sampling.chains, num_warmup=sampling.warmup, most_draws=500,
        row_tile=case.spec.num_rows, initial=sampling.initial.model_dump(), is_optimised=True,
    )  # fmt: skip

    def sample(seed: int) -> tuple[Mapping[str, np.ndarray], float]:
        begin = time.perf_counter()
        done = run(built, sampling.draws, seed)
        return named_draws(case, done.draws), time.perf_counter() - begin

    compilation = time.perf_counter() - begin
    sample(0)
    return Contender(compilation, sample)


def peer(name: str, sampler: str, folder: Path, python: Path) -> Contender:
    """Start a sampler of the other environment."""
    process = subprocess.Popen(
        [python, OTHERS, name, sampler], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(OTHERS.parents[1])},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    asks, answers = process.stdin, process.stdout

    def sample(seed: int) -> tuple[Mapping[str, np.ndarray], float]:
        print(seed, folder / f"{sampler}.npz", file=asks, flush=True)
        seconds = json.loads(answers.readline())["seconds"]
        with np.load(folder / f"{sampler}.npz") as draws:
            return dict(draws), seconds

    return Contender(json.loads(answers.readline())["seconds"], sample)


def effective(draws: Mapping[str, np.ndarray], quantities: list[str]) -> float:
    """Return the smallest effective number of draws, of bulk and tail."""
    table = convergence_table(np.stack([draws[each] for each in quantities], axis=-1).astype(np.float64))
    return float(min(table["ess_bulk"].min(), table["ess_tail"].min()))


def main(names: list[str]) -> None:
    """Print a line for each table, and the median of the ratios to the better of the others."""
    python = Path(".venv-peers/bin/python").absolute()
    if not python.is_file():
        raise SystemExit("no environment of other samplers: run `make peers-env`")
    ratios = []
    print("| table | ours | NumPyro | nutpie | ratio to the better | compilation, s |\n|---|---|---|---|---|---|")
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            contenders = {"ours": ours(name, folder / "ours")} | {
                each: peer(name, each, folder, python) for each in PEERS
            }
            rates: dict[str, list[float]] = {each: [] for each in contenders}
            for seed in range(1, ROUNDS + 1):
                for each, contender in contenders.items():
                    draws, seconds = contender.sample(seed)
                    rates[each].append(effective(draws, list(reference()[name])) / seconds)
        medians = {each: float(np.median(values)) for each, values in rates.items()}
        ratios.append(medians["ours"] / max(medians[each] for each in PEERS))
        compilation = ", ".join(f"{contender.compilation:.1f}" for contender in contenders.values())
        print(
            f"| {name} | {' | '.join(f'{value:.0f}' for value in medians.values())} | {ratios[-1]:.2f} | {compilation} |",
            flush=True,
        )
    print(f"\nmedian {np.median(ratios):.2f}, smallest {min(ratios):.2f}")
    if np.median(ratios) < LEAST_MEDIAN or min(ratios) < LEAST:
        raise SystemExit(f"slower than a median of {LEAST_MEDIAN}, or than {LEAST} on a table")


if __name__ == "__main__":
    main(sys.argv[1:])
