"""Numbers that were published with all their digits, evaluated anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.sources.hidden_markov import INITIAL, NOISE, SIGNAL, TRANSITION, simulate_processes
from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.models.hidden_markov import HiddenMarkov, Options

__all__ = ["Exact", "ExactInPymc"]

PROBES = {"published": (SIGNAL, NOISE), "probe-1": (1.1, 0.2), "probe-2": (0.7, 0.45), "probe-3": (1.4, 0.1)}
"""Case -> signal and noise; the points beside the published one show that nothing is typed in."""


def _model() -> tuple[HiddenMarkov, dict[str, Any]]:
    jax.config.update("jax_enable_x64", True)
    source = SourceOptions()
    emissions = simulate_processes(source.num_processes, source.num_steps, source.seed)
    spec = DataSpec(len(emissions), {"emissions": FieldSpec(emissions.shape[1:], "float64")}, {}, "float64")
    return HiddenMarkov(Options(), spec), {"emissions": emissions}


class Exact:
    """Log likelihood of the first process and of all, and its derivative by the signal."""

    def prepare(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate at the published values and at some others."""
        del case
        model, rows = _model()
        per_row = jax.jit(model.log_likelihood)
        both = jax.jit(model.log_likelihood_and_gradient)
        found = []
        for name, (signal, noise) in PROBES.items():
            at = {"signal": signal, "noise": noise, "initial": INITIAL, "transition": TRANSITION}
            latents = {k: jnp.asarray(v) for k, v in at.items()}
            value, gradient = both(latents, rows, jnp.ones(len(rows["emissions"]), bool))
            quantities = {
                "log_likelihood_first": per_row(latents, rows)[0],
                "log_likelihood_all": value,
                "derivative_signal": gradient["signal"],
            }
            found += [_row(quantity, name, value, signal, noise) for quantity, value in quantities.items()]
        return {"rows": found}

    def run(self, repeat: int) -> dict[str, Any]:
        """Nothing is timed."""
        raise NotImplementedError(f"round {repeat} of numbers that do not change")


class ExactInPymc:
    """Terms of the log density at PyMC's initial point, with our likelihood as an operation in a PyMC model."""

    def prepare(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate."""
        import numpy as np
        import pymc

        from bayesmesh.bridges.pymc_operation import log_likelihood_operation

        del case
        model, rows = _model()
        with pymc.Model() as in_pymc:
            latents = {
                "signal": pymc.Normal("signal", 0, 1),
                "noise": pymc.HalfNormal("noise", 1),
                "initial": pymc.Dirichlet("initial", np.ones(3)),
                "transition": pymc.Dirichlet("transition", np.ones((3, 3))),
            }
            pymc.Potential("log_likelihood", log_likelihood_operation(model, rows)(**latents))
        start = in_pymc.initial_point(0)
        terms = in_pymc.point_logps(start, round_vals=10)
        signal, noise = float(start["signal"]), float(np.exp(start["noise_log__"]))
        names = {name: name if name == "log_likelihood" else f"log_prior_{name}" for name in terms}
        return {"rows": [_row(names[k], "pymc_initial", v, signal, noise) for k, v in terms.items()]}

    def run(self, repeat: int) -> dict[str, Any]:
        """Nothing is timed."""
        raise NotImplementedError(f"round {repeat} of numbers that do not change")


def _row(quantity: str, case: str, value: Any, signal: float, noise: float) -> dict[str, Any]:
    return {"quantity": quantity, "case": case, "value": float(value), "signal": float(signal), "noise": float(noise)}
