"""Compare No-U-Turn samplers of four packages with ours on one model, by effective draws per second.

The model and the data are those of PyMC's example gallery, "How to wrap a JAX function for use in PyMC". The others
have the published budget, two chains of 1,000 + 1,000 iterations on two cores, and the published likelihood; ours has
many short chains and its own forward pass, ChEES-HMC in float32 and in float64. The measure is the smallest bulk
effective sample size over all numbers of all latents, divided by the seconds of warmup and draws.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.data.sources.hidden_markov import simulate_processes
from bayesmesh_reproduction.benchmarks.harness import OK, Case, Measurement, Options, Outcome, Ratio, compare, ratio
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.benchmarks.process import ON_CPU, Contender, list_platforms, on_platforms, peers_python

_log = logging.getLogger("bayesmesh")

LEAST = 8.0
"""Gate: required ratio to the best other sampler, in effective draws per second."""

MOST_R_HAT = 1.02
"""Largest R-hat of our chains; draws of chains that disagree do not count as effective."""

OURS = "ours: ChEES-HMC"

INITIAL = {"method": "zero", "spread": 0.1}
"""Start near the origin of unconstrained space; from distant prior draws, some chains reach a mode with a wrong signal."""

LONG = {"target_acceptance": 0.55, "initial_leapfrog_steps": 40}
"""Options of ChEES-HMC: rare states cause long tails, which trajectories of a dozen steps cross in one draw."""


OTHERS = (
    ("BlackJAX NUTS", "BlackjaxNuts", ""),
    ("NumPyro NUTS", "NumpyroNuts", ""),
    ("nutpie, JAX", "Nutpie", "jax"),
    ("nutpie, Numba", "Nutpie", "numba"),
    ("PyMC NUTS, JAX operation", "PymcNuts", "jax"),
    ("PyMC NUTS, PyTensor", "PymcNuts", "pytensor"),
)
"""The other samplers: name, class in `contenders`, and variant."""


def run(options: Options) -> Outcome:
    """Compare the samplers, and evaluate the numbers that must match in all digits."""
    source = SourceOptions()
    emissions = simulate_processes(source.num_processes, source.num_steps, source.seed)
    peers = peers_python("hidden_markov")
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "emissions.npy")
        np.save(data, emissions)
        case = dict(zip(("processes", "observations"), emissions.shape, strict=True))
        limit, rounds = max(options.seconds_limit, 600.0), options.pick(3, quick=1)
        limits = options.limits(run_s=limit, prepare_s=limit, rounds=rounds, least_rounds=1, case_s=240)
        measured = compare([Case(case, _contenders(options, data, peers, list_platforms()))], limits)
    exact, silent = _exact(peers, case)
    write_rows(options.layout.table("hidden_markov-exact"), exact)
    rows = [m.row() for m in [*measured, *silent]]
    return Outcome(rows, _ratios(measured, case, options), ("ess_per_s", "min_ess_bulk", "max_r_hat"))


def _contenders(options: Options, data: str, peers: str | None, platforms: Mapping[str, str]) -> list[Contender]:
    """Return ours on every platform and, if their environment exists, the others on the CPU."""
    iterations = options.pick(1000, quick=50)
    budget = {"data": data, "chains": 2, "warmup": iterations, "draws": iterations}
    many = {"data": data, "chains": options.pick(32, quick=8), "warmup": options.pick(400, quick=40)}
    ours = {**many, "draws": options.pick(2000, quick=20), "dtype": "float32", "initial": INITIAL}
    chees, nuts = {**ours, "kernel": "chees", "options": LONG}, {**ours, "kernel": "nuts", "options": {}}
    # The others compute in float64, as in the gallery.
    kernels = {OURS: chees, f"{OURS}, float64": {**chees, "dtype": "float64"}, "ours: NUTS": nuts}
    work = f"{__name__}.ours:Ours"
    found = on_platforms([Contender(name, work, settings) for name, settings in kernels.items()], platforms)
    if peers is None:
        return found
    rows = options.pick(OTHERS, quick=OTHERS[:1])
    work = f"{__name__}.contenders"
    others = [Contender(name, f"{work}:{cls}", {**budget, "variant": variant}, peers) for name, cls, variant in rows]
    return [*found, *on_platforms(others, ON_CPU)]


def _ratios(measured: Sequence[Measurement], case: Mapping[str, object], options: Options) -> list[Ratio]:
    """Return ratios of ours to each other sampler; the one to the best has a gate if all ran and ours converged."""
    rates = {m.contender: m.facts["ess_per_s"] for m in measured if "ess_per_s" in m.facts}
    others = {name: rate for name, rate in rates.items() if not name.startswith("ours")}
    best = max(others, key=others.__getitem__, default="another sampler")
    gate = options.pick(LEAST, quick=None)
    first = ratio(measured, case, OURS, against=best, least=gate, fact="ess_per_s")
    rest = [ratio(measured, case, OURS, against=name, fact="ess_per_s") for name in sorted(others.keys() - {best})]
    return [first if gate is None else first._replace(reason=_reason(measured)), *rest]


def _reason(measured: Sequence[Measurement]) -> str:
    """Return why the gate cannot be evaluated: a sampler failed or ours did not converge; empty if it can."""
    needed = [m for m in measured if m.contender == OURS or not m.contender.startswith("ours")]
    missing = [f"{m.contender}: {m.status}" for m in needed if m.status != OK]
    ours = next((m.facts.get("max_r_hat", math.nan) for m in measured if m.contender == OURS), math.nan)
    if not ours <= MOST_R_HAT:
        missing.append(f"{OURS}: R-hat {ours:.3g}, more than {MOST_R_HAT:g}")
    return "; ".join(missing)


def _exact(peers: str | None, values: Mapping[str, object]) -> tuple[list[dict[str, object]], list[Measurement]]:
    """Return rows of the numbers that must match all published digits, and of the same numbers at points drawn now.

    Some need PyMC. If that fails, the result is a measurement with the reason, so that earlier measurements are kept
    and claims find no number.
    """
    works = [("Exact", sys.executable), *([("ExactInPymc", peers)] if peers else [])]
    contenders = [Contender(f"exact numbers: {work}", f"{__name__}.exact:{work}", {}, python) for work, python in works]
    case = Case({"seed": time.time_ns()}, on_platforms(contenders, ON_CPU))
    measured = compare([case], Options().limits(rounds=0, prepare_s=300.0))
    silent = [dataclasses.replace(m, case=values) for m in measured if m.status != OK]
    for m in silent:
        _log.error("benchmark hidden_markov: %s", m.describe())
    return [row for m in measured for row in m.facts.get("rows", ())], silent
