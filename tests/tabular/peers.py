"""Effective draws a second of `glm` with its defaults against NumPyro's NUTS and nutpie, on published tables.

    PYTHONPATH=src:tests:tests/support .venv/bin/python -m tabular.peers [--rounds 3] [NAME ...]

The samplers take turns on a table, each with its compiled program in a process of its own. Counted are warmup and draws; compilation is
shown apart. The number of effective draws is the smallest among the quantities that the others have, of bulk and tail. All three sample
the same posterior: the largest difference from a mean of another, in standard errors of both, is shown too where its draws suffice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

import programs
from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.diagnostics.convergence import convergence_table
from cases import Case
from posteriors.judging import run
from tabular.base import Table
from tabular.published import PUBLISHED, columns_of
from tabular.runs import LEAST_ESS, case_of, named_draws

LEAST_MEDIAN, LEAST = 1.3, 0.5
"""Ratios to the better of the others: the median over tables, and that of each."""

PEERS = {"numpyro": "NumPyro's NUTS", "nutpie": "nutpie, low rank"}
OTHERS = Path(__file__).with_name("others.py")


class Contender(NamedTuple):
    """A sampler of one table: seconds of compilation, and seed -> draws of each quantity, and seconds."""

    compilation: float
    sample: Callable[[int], tuple[Mapping[str, np.ndarray], float]]


def read_case(name: str, folder: Path) -> Case:
    """Return `glm` bound to the table after files, fetch and shard."""
    published = PUBLISHED[name]
    options = {"formula": published.formula, "family": published.family, **published.options}
    source = {"types": dict.fromkeys(published.codes, "category")}
    columns = columns_of(name)
    return case_of(name, Table(lambda _: columns, "glm", options, source), columns, folder)


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


def peer(name: str, sampler: str, folder: Path, python: Path, at_end: contextlib.ExitStack) -> Contender:
    """Start a sampler of the other environment, which ends with its standard input."""
    process = at_end.enter_context(
        subprocess.Popen(
            [python, OTHERS, name, sampler],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(OTHERS.parents[1])},
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asks, answers = process.stdin, process.stdout

    def sample(seed: int) -> tuple[Mapping[str, np.ndarray], float]:
        print(seed, folder / f"{sampler}.npz", file=asks, flush=True)
        seconds = json.loads(answers.readline())["seconds"]
        with np.load(folder / f"{sampler}.npz") as draws:
            return dict(draws), seconds

    return Contender(json.loads(answers.readline())["seconds"], sample)


class Known(NamedTuple):
    """What the draws of some quantities say: smallest effective number, of bulk and tail; means, and their standard errors."""

    effective: float
    means: np.ndarray
    errors: np.ndarray


def known(draws: Mapping[str, np.ndarray], quantities: list[str]) -> Known:
    """Return what draws say about quantities."""
    table = convergence_table(np.stack([draws[each] for each in quantities], axis=-1).astype(np.float64))
    return Known(float(min(table["ess_bulk"].min(), table["ess_tail"].min())), table["mean"], table["mcse_mean"])


def main(names: list[str], rounds: int) -> None:
    """Print a line for each table, of medians over rounds, and the median of the ratios to the better of the others."""
    # A package above this module has imported JAX, so its variable comes too late.
    jax.config.update("jax_enable_x64", True)
    python = Path(".venv-peers/bin/python").absolute()
    if not python.is_file():
        raise SystemExit("no environment of other samplers: run `make peers-env`")
    ratios = []
    print(
        "| table | ours | NumPyro | nutpie | ratio to the better | apart, errors | compilation, s |\n|---|---|---|---|---|---|---|"
    )
    for name in names or PUBLISHED:
        with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as at_end:
            folder = Path(path)
            contenders = {"ours": ours(name, folder / "ours")} | {
                each: peer(name, each, folder, python, at_end) for each in PEERS
            }
            rates: dict[str, list[float]] = {each: [] for each in contenders}
            apart = math.nan
            for seed in range(1, rounds + 1):
                done = {each: contender.sample(seed) for each, contender in contenders.items()}
                found = {each: known(draws, list(done["numpyro"][0])) for each, (draws, _) in done.items()}
                for each, (_, seconds) in done.items():
                    rates[each].append(found[each].effective / seconds)
                    if each != "ours" and found[each].effective >= LEAST_ESS:
                        distance = np.abs(found["ours"].means - found[each].means)
                        errors = np.hypot(found["ours"].errors, found[each].errors)
                        apart = np.fmax(apart, (distance / errors).max())
        medians = {each: float(np.median(values)) for each, values in rates.items()}
        ratios.append(medians["ours"] / max(medians[each] for each in PEERS))
        compilation = ", ".join(f"{contender.compilation:.1f}" for contender in contenders.values())
        print(
            f"| {name} | {' | '.join(f'{value:.0f}' for value in medians.values())} | {ratios[-1]:.2f} | {apart:.1f} | {compilation} |",
            flush=True,
        )
    print(f"\nmedian {np.median(ratios):.2f}, smallest {min(ratios):.2f}")
    if np.median(ratios) < LEAST_MEDIAN or min(ratios) < LEAST:
        raise SystemExit(f"slower than a median of {LEAST_MEDIAN}, or than {LEAST} on a table")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a table; all without names")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each sampler")
    given = parser.parse_args()
    main(given.names, given.rounds)
