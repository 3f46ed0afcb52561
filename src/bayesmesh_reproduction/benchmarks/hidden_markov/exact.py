"""Evaluate numbers that were published with all their digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.sources.hidden_markov import INITIAL, NOISE, SIGNAL, TRANSITION, simulate_processes
from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.models.hidden_markov import HiddenMarkov, Options
from bayesmesh_reproduction.benchmarks.hidden_markov.published import pymc_model

NUM_PROBES = 2
"""Number of points for our model in addition to the published ones."""


class Point(NamedTuple):
    """Latents, and the seed from which they were drawn; empty for published points."""

    signal: float
    noise: float
    initial: np.ndarray
    transition: np.ndarray
    seed: int | str = ""

    def latents(self) -> dict[str, np.ndarray]:
        """Return name -> float64 array."""
        return {name: np.asarray(value, np.float64) for name, value in self._asdict().items() if name != "seed"}


PUBLISHED = {
    "published": Point(SIGNAL, NOISE, INITIAL, TRANSITION),
    "pymc_initial": Point(0.0, 1.0, np.full(3, 1 / 3), np.full((3, 3), 1 / 3)),
}
"""Case -> point; the second is where PyMC starts."""


def draw_point(seed: int) -> Point:
    """Return a point that follows from the seed; the second computation of the claims draws it again."""
    generator = np.random.default_rng(seed)
    signal, noise = generator.uniform(0.7, 1.4), generator.uniform(0.1, 0.45)
    return Point(signal, noise, generator.dirichlet(np.full(3, 5.0)), generator.dirichlet(np.full(3, 5.0), 3), seed)


def _model() -> tuple[HiddenMarkov, dict[str, np.ndarray]]:
    jax.config.update("jax_enable_x64", True)
    source = SourceOptions()
    emissions = simulate_processes(source.num_processes, source.num_steps, source.seed)
    spec = DataSpec(len(emissions), {"emissions": FieldSpec(emissions.shape[1:], "float64")}, {}, "float64")
    return HiddenMarkov(Options(), spec), {"emissions": emissions}


class Exact:
    """Log likelihood of the first process and of all, its derivative by the signal, and the terms of our prior."""

    def prepare(self, case: Mapping[str, int]) -> dict[str, object]:
        """Evaluate at the published points and at points from the ``seed`` of the case."""
        model, rows = _model()
        per_row = jax.jit(model.log_likelihood)
        both = jax.jit(model.log_likelihood_and_gradient)
        prior = model.prior(model.spec)
        assert isinstance(prior, tfp.distributions.JointDistributionNamed)
        drawn = {f"probe-{i}": draw_point(case["seed"] + i) for i in range(1, NUM_PROBES + 1)}
        found = []
        for name, point in {**PUBLISHED, **drawn}.items():
            latents = {k: jnp.asarray(v) for k, v in point.latents().items()}
            value, gradient = both(latents, rows, jnp.ones(len(rows["emissions"]), bool))
            quantities = {
                "log_likelihood_first": per_row(latents, rows)[0],
                "log_likelihood_all": value,
                "derivative_signal": gradient["signal"],
            }
            densities, volumes = prior.log_prob_parts(latents), _log_volumes(point.latents())
            quantities |= {f"log_prior_{k}": float(v) + volumes[k] for k, v in densities.items()}
            found += [_row(quantity, name, "model", value, point) for quantity, value in quantities.items()]
        return {"rows": found}


def _log_volumes(latents: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the log Jacobian of PyMC's map from unconstrained space, by which its terms differ from densities of the latents."""
    volumes = {name: float(np.sum(np.log(p)) + p.size / 3 * np.log(3)) for name, p in latents.items() if p.ndim}
    return {"signal": 0.0, "noise": float(np.log(latents["noise"])), **volumes}


class ExactInPymc:
    """Terms of the log density in PyMC, with our likelihood as an operation in a PyMC model."""

    def prepare(self, case: Mapping[str, int]) -> dict[str, object]:
        """Evaluate at PyMC's starting point, and at a point from the ``seed`` of the case."""
        from bayesmesh.models.pymc.operation import log_likelihood_operation

        in_pymc = pymc_model(log_likelihood_operation(*_model()))
        start, point = in_pymc.initial_point(0), draw_point(case["seed"])
        values, there = point.latents(), {}
        for rv in in_pymc.free_RVs:
            transform, value = in_pymc.rvs_to_transforms[rv], values[rv.name]
            unconstrained = value if transform is None else transform.forward(value, *rv.owner.inputs).eval()
            there[in_pymc.rvs_to_values[rv].name] = unconstrained
        found = []
        for label, at, given in (("pymc_initial", PUBLISHED["pymc_initial"], start), ("probe-1", point, there)):
            terms = in_pymc.point_logps(given, round_vals=10)
            terms = {name if name == "log_likelihood" else f"log_prior_{name}": v for name, v in terms.items()}
            found += [_row(name, label, "PyMC", v, at) for name, v in terms.items()]
        return {"rows": found}


def _row(quantity: str, case: str, by: str, value: SupportsFloat, point: Point) -> dict[str, object]:
    about = {"quantity": quantity, "case": case, "by": by, "value": float(value)}
    latents = {
        name: " ".join(map(repr, v.ravel().tolist())) if v.ndim else float(v) for name, v in point.latents().items()
    }
    return {**about, **latents, "seed": str(point.seed)}
