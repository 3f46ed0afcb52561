"""Compare random-walk Metropolis with NumPy, JAX and TFP, by steps per second over samples and over chains.

Source:
    R. Louf 2019, "Massively parallel MCMC with JAX": scalar chains on a mixture of four normals, from 0, with a normal
    proposal of scale 0.1, over 1,000 chains and over 1,000 samples.

Arms of the table: ``samples`` and ``chains`` are the published sweeps; ``gate`` compares ours with NumPy;
``kernels`` has every kernel, published and correct, at the published and at an adapted scale, and compares the mean and
variance of their last states with the target's; ``adapted`` measures effective samples per second, from the error of
the means of chains (`effective_sample_size`). In the other arms chains have not left their start, so an effective
sample size would be meaningless.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bayesmesh_reproduction.benchmarks.harness import Case, Measurement, Options, Outcome, Ratio, compare, ratio
from bayesmesh_reproduction.benchmarks.metropolis.states import keep_states, write_moments
from bayesmesh_reproduction.benchmarks.metropolis.target import MEAN, STEP, VARIANCE
from bayesmesh_reproduction.benchmarks.process import ON, Contender, list_platforms, on_platforms

NUMPY, TFP, OURS = "numpy", "tfp compiled", "ours"


def _contender(name: str, work: str, **options: object) -> Contender:
    return Contender(name, f"{__name__}.{work}", options)


_NUMPY = _contender(NUMPY, "with_numpy:Published")
_OURS = _contender(OURS, "ours:Ours")
_TFP = _contender(TFP, "with_tfp:Tfp", mode="compiled")

PUBLISHED = (
    _NUMPY,
    _contender("jax step by step", "with_jax:Stepwise", is_published=True),
    _contender("jax compiled loop", "with_jax:Loop", is_published=True),
    _TFP,
    _contender("tfp without jit", "with_tfp:Tfp", mode="plain"),
    _OURS,
)
"""The contenders of both sweeps: the published ones with their flaws, TFP with the right density, and ours."""

EAGER = _contender("tfp not compiled", "with_tfp:Tfp", mode="eager")
"""Needs tens of milliseconds per step, so it takes part only for few samples."""

CORRECT = (
    _contender("numpy, correct", "with_numpy:Correct"),
    _contender("jax compiled loop, correct", "with_jax:Loop", is_published=False),
    _TFP,
    _OURS,
)
"""Contenders with the right density and independent keys."""

_PUBLISHED_SAMPLES = 10
"""Start of the published sweep; one sample shows the cost of a call and has no gate."""

_GATE_LIMIT_S = 180.0
"""Time limit of a run at the gates, where NumPy takes almost a minute."""

GATE = 20.0
"""Required ratio of ours to NumPy, in steps per second."""


def _case(arm: str, chains: int, samples: int, scale: float = STEP, *, keeps_means: bool = False) -> dict[str, object]:
    return {"arm": arm, "chains": chains, "samples": samples, "scale": scale, "keeps_means": keeps_means}


def _everywhere(contenders: Sequence[Contender], platforms: Mapping[str, str]) -> list[Contender]:
    """Return NumPy's contenders, and all others once per platform of JAX."""
    on_numpy, on_jax = ([c for c in contenders if c.name.startswith(NUMPY) is is_numpy] for is_numpy in (True, False))
    return [*on_numpy, *on_platforms(on_jax, platforms)]


def run(options: Options) -> Outcome:
    """Measure both sweeps, ours against NumPy at the gates, the kernels side by side, and the adapted proposal."""
    # Sizes are pairs (chains, samples).
    samples = options.pick([(1_000, 10**power) for power in range(7)], quick=[(1_000, 1), (1_000, 20)])
    chains = options.pick([(10**power, 1_000) for power in range(7)], quick=[(1_000, 20), (4_000, 20)])
    gates = options.pick([(100_000, 1_000), (1_000_000, 100)], quick=[(10_000, 50)])
    kernels = options.pick((10_000, 1_000), quick=(1_000, 100))
    # A contender may need more memory than exists; stop it before the machine runs out.
    memory = 0.6 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    rounds, case_s = options.pick(7, quick=2), options.seconds_limit / 2
    limits = options.limits(rounds=rounds, least_rounds=1, case_s=case_s, memory_mib=memory)
    patient = limits._replace(run_s=max(limits.run_s, _GATE_LIMIT_S), rounds=2, least_rounds=2)
    adaptation = Case({"arm": "adaptation"}, [_contender("adaptation", "ours:Adaptation")])
    (adapted,) = compare([adaptation], limits._replace(rounds=0))
    found = [adapted.facts["scale_found"]] if "scale_found" in adapted.facts else []
    platforms = list_platforms()
    published, correct = _everywhere(PUBLISHED, platforms), _everywhere(CORRECT, platforms)
    eager, gated = on_platforms([EAGER], platforms), _everywhere((_NUMPY, CORRECT[0], _OURS), platforms)
    everyone = [*_everywhere(PUBLISHED[:3], platforms), *correct]
    cases = [Case(_case("samples", *size), [*published, *eager], "samples") for size in samples]
    cases += [Case(_case("chains", *size), published, "chains") for size in chains]
    cases += [Case(_case("gate", *size), gated, limits=patient) for size in gates]
    cases += [Case(_case("adapted", *kernels, scale, keeps_means=True), correct) for scale in found]
    with tempfile.TemporaryDirectory() as folder:
        for name, scale in zip(("published", "adapted"), (STEP, *found), strict=False):
            keepers = keep_states(everyone, Path(folder), name)
            cases.append(Case(_case("kernels", *kernels, scale), keepers, limits=limits._replace(rounds=1)))
        measured = compare(cases, limits)
        # A quick run keeps the results of a full run.
        if not options.is_quick:
            write_moments(options.layout, Path(folder))
    rows = [_row(m) for m in measured]
    return Outcome(rows, list(_ratios(measured, gates)), ("steps_per_s", "ess_per_s", "compile_s"))


def _row(measurement: Measurement) -> dict[str, object]:
    """Return the row of the table, and add rates to the facts of the measurement."""
    if measurement.seconds:
        seconds, facts = statistics.median(measurement.seconds), measurement.facts
        facts["steps_per_s"] = measurement.case["chains"] * measurement.case["samples"] / seconds
        facts["with_compile_s"] = seconds + facts.get("compile_s", 0.0)
        facts["target_mean"], facts["target_variance"] = MEAN, VARIANCE
        if "ess" in facts:
            facts["ess_per_s"] = facts["ess"] / seconds
    return measurement.row()


def _ratios(measured: list[Measurement], gates: Iterable[tuple[int, int]]) -> Iterator[Ratio]:
    """Return ratios of ours to NumPy at the gates, and to all others for a thousand chains or more."""
    for chains, samples in gates:
        case = {"arm": "gate", "chains": chains, "samples": samples}
        yield ratio(measured, case, OURS, against=NUMPY, least=GATE)
        yield ratio(measured, case, OURS, against=f"{NUMPY}, correct")
    for m in measured:
        # Compare contenders on the same platform.
        ours = "".join([OURS, *m.contender.partition(ON)[1:]])
        if m.contender == ours or not m.seconds or m.case["chains"] < 1_000:
            continue
        case = {name: m.case[name] for name in ("arm", "chains", "samples")}
        if m.case["arm"] in ("samples", "chains"):
            least = 1.0 if m.case["samples"] >= _PUBLISHED_SAMPLES else None
            yield ratio(measured, case, ours, against=m.contender, least=least)
        elif m.case["arm"] == "adapted":
            by_ess = ratio(measured, case, ours, against=m.contender, fact="ess_per_s")
            yield by_ess._replace(case=f"{by_ess.case}, ESS per second")
