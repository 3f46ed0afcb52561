"""Claims of the posts on a million Metropolis chains."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.results import Reading, Results

_SOURCE = Source("R. Louf, Massively parallel MCMC with JAX (2019 to 2020)")
_CPU = "a CPU that is not named"
_TIMES, _MOMENTS = "benchmarks/metropolis.csv", "benchmarks/metropolis-moments.csv"
_LOOP, _TFP = "jax compiled loop", "tfp compiled"
_TENSORFLOW = "TFP on TensorFlow; here it is on JAX, which has no graph without compilation"

_ERRORS = (
    "the density negates the mixture's log-sum-exp and subtracts the densities of its components",
    "one key is used for the proposal and for the acceptance test",
    'only the last state is kept, so that "samples" are Metropolis steps',
    "with a proposal scale of 0.1 the chains have not converged after 1,000 steps",
)
A1 = Claim("A1", _SOURCE, "1e9 Metropolis steps (1,000,000 chains x 1,000) on a CPU", _ERRORS)


@A1.hardware(("seconds", "25.4", "median_s"), ("seconds with compilation", "26.6", "with_compile_s"), unit="s", on=_CPU)
def _seconds(results: Results, column: str) -> Reading:
    return results.rows(_TIMES, arm="chains", chains=1_000_000, samples=1_000, contender="ours").only(column)


def _moment_again(results: Results, column: str, scale: str, contender: str = "ours") -> Reading:
    array = f"posterior/{scale}_{contender.replace(', ', '_')}"
    return results.over("benchmarks/metropolis-states.zarr", array, np.mean if column == "mean" else np.var)


def _moment_mcse(results: Results, column: str, scale: str, contender: str = "ours") -> Reading:
    return _moment(results, f"{column}_se", scale, contender)


_COMPUTED: Any = {"again": _moment_again, "mcse": _moment_mcse}


# Last states of 10,000 chains after 1,000 steps: published with the target's moments, mean 0.92 and variance 9.70.
@A1.statistical(("mean, scale 0.1", "0.17", "mean", "published"), tolerance=0.2, **_COMPUTED)
@A1.statistical(("variance, scale 0.1", "4.7", "variance", "published"), tolerance=0.1, **_COMPUTED)
@A1.statistical(
    ("mean, adapted scale", "0.92", "mean", "adapted"),
    ("variance, adapted scale", "9.70", "variance", "adapted"),
    ("mean, adapted scale, correct NumPy", "0.92", "mean", "adapted", "numpy, correct"),
    ("variance, adapted scale, correct NumPy", "9.70", "variance", "adapted", "numpy, correct"),
    **_COMPUTED,
)
@A1.shape(("variance, published density and key", "not that of the target", "variance", "published", _LOOP), at_most=6)
def _moment(results: Results, column: str, scale: str, contender: str = "ours") -> Reading:
    return results.rows(_MOMENTS, scale=scale, contender=contender).only(column)


A2 = Claim("A2", _SOURCE, "the same work against NumPy, in one run", ("the text says 20 times, the times give 18.8",))


@A2.hardware(("times faster, 100 samples", "18.8", "arm gate, chains 1000000, samples 100"), on=_CPU)
@A2.hardware(("times faster, 100,000 chains", "18.8", "arm gate, chains 100000, samples 1000"), on=_CPU)
def _times_faster(results: Results, case: str) -> Reading:
    return results.rows("benchmarks/metropolis-ratios.csv", case=case, contender="ours", against="numpy").only("ratio")


_FEW = "below about 1,000 samples of 1,000 chains NumPy and plain TFP beat their compiled twins, compilation counted"
A3 = Claim("A3", _SOURCE, _FEW)


@A3.shape(("JAX over NumPy, 10 samples", "above 1", 10, _LOOP, "numpy"), at_least=1)
@A3.shape(("JAX over NumPy, 100 samples", "above 1", 100, _LOOP, "numpy"), at_least=1)
@A3.shape(("JAX over NumPy, 10,000 samples", "below 1", 10_000, _LOOP, "numpy"), at_most=1)
@A3.hardware(("TFP compiled over not compiled, 1 sample", "above 1", 1, _TFP, "tfp not compiled"), on=_TENSORFLOW)
def _with_compilation(results: Results, samples: int, contender: str, against: str) -> Reading:
    def seconds(who: str) -> Reading:
        return results.rows(_TIMES, arm="samples", chains=1_000, samples=samples, contender=who).only("with_compile_s")

    return seconds(contender) / seconds(against)


A4 = Claim("A4", _SOURCE, "compilation is a constant cost, whatever the number of samples")


@A4.shape(("largest over smallest", "constant"), at_most=3)
def _spread_of_compilation(results: Results) -> Reading:
    return results.rows(_TIMES, arm="samples", contender=_LOOP).spread("compile_s")


@A4.shape(("slope in logarithms, TFP", "flat"), at_least=-0.25, at_most=0.25)
def _slope_of_compilation(results: Results) -> Reading:
    return results.rows(_TIMES, arm="samples", contender=_TFP).slope("compile_s", "samples")


A5 = Claim("A5", _SOURCE, "memory grows with the samples that are kept, and is flat where they are streamed")


@A5.shape(("streaming, largest over smallest", "flat"), at_most=1.25)
def _memory_of_streaming(results: Results) -> Reading:
    return results.rows(_TIMES, arm="samples", contender="ours").spread("peak_mib")


@A5.shape(("keeping all, 100,000 samples over 10", "grows until memory is full"), at_least=1.5)
def _memory_of_keeping(results: Results) -> Reading:
    def peak(samples: int) -> Reading:
        return results.rows(_TIMES, arm="samples", samples=samples, contender=_TFP).only("peak_mib")

    return peak(100_000) / peak(10)


CLAIMS = (A1, A2, A3, A4, A5)
