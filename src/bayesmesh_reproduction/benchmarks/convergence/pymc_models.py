"""The targets in PyMC, for nutpie, which compiles PyMC models to machine code but calls functions of JAX through Python.

A test compares each with the log density of all other samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc

from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS, Data, Hierarchical, IllConditioned

MODULE = __name__.rpartition(".")[0]


def _regression(rows: Data, observe: Callable[[Any], Any], *, is_noisy: bool, is_grouped: bool = False) -> None:
    intercept = pymc.Normal("intercept", 0, 5)
    eta = intercept + rows["x"] @ pymc.Normal("slope", 0, 2.5, shape=rows["x"].shape[1])
    more = {"noise": pymc.HalfNormal("noise", 5)} if is_noisy else {}
    if is_grouped:
        spread = pymc.HalfNormal("spread", 2)
        eta = eta + (spread * pymc.Normal("group", 0, 1, shape=Hierarchical.NUM_GROUPS))[rows["group"]]
    observe({"eta": eta, "y": rows["y"], **more})


def _linear(rows: Data) -> None:
    _regression(rows, lambda v: pymc.Normal("y", v["eta"], v["noise"], observed=v["y"]), is_noisy=True)


def _hierarchical(rows: Data) -> None:
    observe = lambda v: pymc.Normal("y", v["eta"], v["noise"], observed=v["y"])  # noqa: E731
    _regression(rows, observe, is_noisy=True, is_grouped=True)


def _student(rows: Data) -> None:
    _regression(rows, lambda v: pymc.StudentT("y", nu=4, mu=v["eta"], sigma=v["noise"], observed=v["y"]), is_noisy=True)


def _logistic(rows: Data) -> None:
    _regression(rows, lambda v: pymc.Bernoulli("y", logit_p=v["eta"], observed=v["y"]), is_noisy=False)


def _poisson(rows: Data) -> None:
    _regression(rows, lambda v: pymc.Poisson("y", pymc.math.exp(v["eta"]), observed=v["y"]), is_noisy=False)


def _german_credit(rows: Data) -> None:
    slope = pymc.Normal("slope", 0, 1, shape=rows["x"].shape[1])
    pymc.Bernoulli("y", logit_p=rows["x"] @ slope, observed=rows["y"])


def _eight_schools(rows: Data) -> None:
    mean, spread = pymc.Normal("mean", 0, 5), pymc.HalfCauchy("spread", 5)
    effect = mean + spread * pymc.Normal("standardised", 0, 1, shape=8)
    pymc.Normal("y", effect, rows["error"], observed=rows["y"])


def _funnel(rows: Data) -> None:
    del rows
    pymc.Normal("x", 0, pymc.math.exp(pymc.Normal("v", 0, 3) / 2), shape=9)


def _ill_conditioned(rows: Data) -> None:
    del rows
    pymc.MvNormal("x", np.zeros(100), chol=IllConditioned.factor(), shape=100)


BY_CLASS: Mapping[str, Callable[[Data], None]] = {
    "Linear": _linear, "Hierarchical": _hierarchical, "Student": _student, "Logistic": _logistic, "Poisson": _poisson,
    "GermanCredit": _german_credit, "EightSchools": _eight_schools, "Funnel": _funnel, "IllConditioned": _ill_conditioned,
}  # fmt: skip
"""Class of `targets` -> its text."""


def pymc_model(target: str, rows: Data) -> pymc.Model | None:
    """Return a target in PyMC, with the latents of the same names; None if it has no such text."""
    module, _, name = TARGETS[target].model.partition(":")
    if not module.startswith(MODULE) or name not in BY_CLASS:
        return None
    with pymc.Model() as model:
        BY_CLASS[name](rows)
    return model
