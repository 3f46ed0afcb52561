"""Claims of the PyMC example on a hidden Markov model written in JAX."""

from __future__ import annotations

import numpy as np

from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.recomputed_processes import log_density_again
from bayesmesh.reproduction.claims.results import Reading, Results

__all__ = ["CLAIMS"]

_SOURCE = Source(
    "PyMC example gallery, How to wrap a JAX function for use in PyMC",
    "https://www.pymc.io/projects/examples/en/latest/howto/wrapping_jax_function.html",
)
_EXACT = "benchmarks/hidden_markov-exact.csv"


D1 = Claim("D1", _SOURCE, "log-likelihood of the first of the 70 processes at the true values, in float64")
D2 = Claim("D2", _SOURCE, "log-likelihood of all 70 processes")
D3 = Claim("D3", _SOURCE, "its derivative with respect to the signal")


def _published_point_again(results: Results, quantity: str) -> Reading:
    return log_density_again(results, _EXACT, quantity, case="published")


@D1.exact(("nats", "-3.93533794", "log_likelihood_first"), again=_published_point_again)
@D2.exact(("nats", "-37.00348857", "log_likelihood_all"), again=_published_point_again)
@D3.exact(("nats", "-297.86490611", "derivative_signal"), again=_published_point_again)
def _published_point(results: Results, quantity: str) -> Reading:
    return results.rows(_EXACT, case="published", quantity=quantity).only("value")


D4 = Claim("D4", _SOURCE, "log prior and log-likelihood at the initial point of PyMC")


def _initial_point_again(results: Results, by: str, quantity: str) -> Reading:
    return log_density_again(results, _EXACT, quantity, case="pymc_initial", by=by)


@D4.exact(
    ("signal", "-0.92", "PyMC", "log_prior_signal"),
    ("noise", "-0.73", "PyMC", "log_prior_noise"),
    ("initial probabilities", "-1.5", "PyMC", "log_prior_initial"),
    ("transition rows", "-4.51", "PyMC", "log_prior_transition"),
    ("likelihood", "-9812.67", "PyMC", "log_likelihood"),
    ("signal, the model here", "-0.92", "model", "log_prior_signal"),
    ("noise, the model here", "-0.73", "model", "log_prior_noise"),
    ("initial probabilities, the model here", "-1.5", "model", "log_prior_initial"),
    ("transition rows, the model here", "-4.51", "model", "log_prior_transition"),
    again=_initial_point_again,
)
def _initial_point(results: Results, by: str, quantity: str) -> Reading:
    return results.rows(_EXACT, case="pymc_initial", by=by, quantity=quantity).only("value")


D5 = Claim("D5", _SOURCE, "2 chains of 1,000 + 1,000 iterations with PyMC's own NUTS")
D6 = Claim("D6", _SOURCE, "the same with the NUTS of NumPyro")


@D5.hardware(("seconds", "109", "PyMC NUTS, JAX operation", "median_s"), unit="s", on="not stated")
@D6.hardware(
    ("sampling", "47.5", "NumPyro NUTS", "median_s"),
    ("compile", "1.9", "NumPyro NUTS", "compile_s"),
    unit="s",
    on="not stated",
)
def _time(results: Results, contender: str, column: str) -> Reading:
    return results.rows("benchmarks/hidden_markov.csv", contender=contender).only(column)


D7 = Claim("D7", _SOURCE, "the posterior is centred near the true values")


def _summary(results: Results, column: str, variable: str, *index: int) -> Reading:
    where = {"index": ",".join(map(str, index))} if index else {}
    rows = results.rows("hidden_markov/diagnostics/summary.csv", variable=variable, **where)
    # A latent that is a summary too has two equal rows.
    return rows.over(column, np.mean)


def _mcse(results: Results, variable: str) -> Reading:
    return _summary(results, "mcse_mean", variable)


def _mean_again(results: Results, variable: str, *index: int) -> Reading:
    return results.over("hidden_markov/posterior.zarr", f"posterior/{variable}", np.mean, *index)


@D7.statistical(("signal", "1.15", "signal"), tolerance=0.05, again=_mean_again, mcse=_mcse)
@D7.statistical(("noise", "0.15", "noise"), tolerance=0.02, again=_mean_again, mcse=_mcse)
@D7.statistical(("first state", "0.9", "initial", 0), tolerance=0.15, again=_mean_again)
@D7.statistical(("staying in the first", "0.9", "transition", 0, 0), tolerance=0.03, again=_mean_again)
@D7.statistical(("staying in the second", "0.8", "transition", 1, 1), tolerance=0.05, again=_mean_again)
@D7.statistical(("staying in the third", "0.7", "transition", 2, 2), tolerance=0.1, again=_mean_again)
def _mean(results: Results, variable: str, *index: int) -> Reading:
    return _summary(results, "mean", variable, *index)


CLAIMS = (D1, D2, D3, D4, D5, D6, D7)
