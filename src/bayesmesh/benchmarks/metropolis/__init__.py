"""metropolis: steps per second of random-walk Metropolis against NumPy, JAX and TFP, over samples and over chains.

Source:
    R. Louf 2019, "Massively parallel MCMC with JAX": scalar chains on a mixture of four normals, from 0, with a normal
    proposal of scale 0.1, over 1,000 chains and over 1,000 samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayesmesh.benchmarks.harness import Case, Contender, Measurement, Options, Outcome, compare, ratio
from bayesmesh.benchmarks.metropolis.target import STEP

__all__ = ["run"]

NUMPY, STEPWISE, LOOP, TFP, TFP_PLAIN, OURS = (
    "numpy",
    "jax step by step",
    "jax compiled loop",
    "tfp compiled",
    "tfp not compiled",
    "bayesmesh",
)


def _contender(name: str, work: str, **options: Any) -> Contender:
    return Contender(name, f"{__name__}.{work}", options)


_OURS = _contender(OURS, "ours:Ours")
_TFP = _contender(TFP, "probability:Tfp", is_compiled=True)

PUBLISHED = (
    _contender(NUMPY, "plain:Published"),
    _contender(STEPWISE, "compiled:Stepwise", is_published=True),
    _contender(LOOP, "compiled:Loop", is_published=True),
    _TFP,
    _contender(TFP_PLAIN, "probability:Tfp", is_compiled=False),
    _OURS,
)
"""The contenders of both sweeps: the published ones with their flaws, TFP with the right density, and ours."""

CORRECT = (
    _contender("numpy, correct", "plain:Correct"),
    _contender("jax compiled loop, correct", "compiled:Loop", is_published=False),
    _TFP,
    _OURS,
)
"""Contenders with the right density and independent keys."""

GATE = 20.0
"""What ours is to be at least, in steps per second of NumPy."""


def _case(arm: str, chains: int, samples: int, scale: float = STEP, *, keeps_means: bool = False) -> dict[str, Any]:
    return {"arm": arm, "chains": chains, "samples": samples, "scale": scale, "keeps_means": keeps_means}


def run(options: Options) -> Outcome:
    """Measure both sweeps, the kernels side by side, and the adapted proposal."""
    limits = options.limits(rounds=3, least_rounds=1, case_s=options.seconds_limit)
    samples = options.pick((10, 100, 1_000, 10_000, 100_000, 1_000_000), quick=(10, 1_000))
    chains = options.pick((1, 10, 100, 1_000, 10_000, 100_000, 1_000_000), quick=(100, 10_000))
    measured = compare(
        [
            *(Case(_case("samples", 1_000, number), PUBLISHED, "samples") for number in samples),
            *(Case(_case("chains", number, 1_000), PUBLISHED, "chains") for number in chains),
        ],
        limits,
    )
    gates = options.pick(((100_000, 1_000), (1_000_000, 100)), quick=((10_000, 100),))
    both = (PUBLISHED[0], CORRECT[0], _OURS)
    measured += compare(
        [Case(_case("gate", *sizes), both) for sizes in gates], limits._replace(rounds=3, least_rounds=3)
    )
    measured += compare([Case(_case("kernels", 10_000, 1_000), (*PUBLISHED[:3], *CORRECT))], limits._replace(rounds=1))
    (adapted,) = compare([Case({}, [_contender("adaptation", "ours:Adaptation")])], limits._replace(rounds=1))
    if "scale_found" in adapted.facts:
        sizes = options.pick((10_000, 1_000), quick=(1_000, 200))
        case = _case("adapted", *sizes, adapted.facts["scale_found"], keeps_means=True)
        measured += compare([Case(case, CORRECT)], limits)
    return Outcome(
        [_row(m) for m in measured],
        list(_ratios(measured, gates)),
        ("steps_per_s", "ess_per_s", "compile_s"),
    )


def _row(measurement: Measurement) -> dict[str, Any]:
    """Return the row of the table, with rates."""
    row = measurement.row()
    if not measurement.seconds:
        return row
    steps = measurement.case["chains"] * measurement.case["samples"]
    row |= {"steps_per_s": steps / row["median_s"], "with_compile_s": row["median_s"] + row.get("compile_s", 0.0)}
    if "ess" in row:
        row["ess_per_s"] = row["ess"] / row["median_s"]
    return row


def _ratios(measured: list[Measurement], gates: Iterable[tuple[int, int]]) -> Iterable[Any]:
    """Ours against NumPy at the gates, and against everyone wherever there are a thousand chains or more."""
    for chains, samples in gates:
        case = {"arm": "gate", "chains": chains, "samples": samples}
        yield ratio(measured, case, OURS, against=NUMPY, least=GATE)
        yield ratio(measured, case, OURS, against="numpy, correct")
    for m in measured:
        if m.contender != OURS and m.seconds and m.case["arm"] in ("samples", "chains") and m.case["chains"] >= 1_000:
            case = {name: m.case[name] for name in ("arm", "chains", "samples")}
            yield ratio(measured, case, OURS, against=m.contender, least=1.0)
