"""A log density given as one plain function of latents and all data, with a prior or a test point.

For models whose rows depend on each other: time series, Gaussian processes, differential equations. In a module of your
own::

    def arma(latents, data):
        def step(carry, y): ...
        return tfd.Normal(expected, latents["noise"]).log_prob(data["y"]).sum()

Every device with chains holds the whole dataset: rows are neither tiled nor spread over devices.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.prior_texts import parse_prior
from bayesmesh.config.settings import Settings
from bayesmesh.config.user_code import check_arguments, load_function
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models._latents import FunctionPrior, Maps, Matrices, find_matrices
from bayesmesh.models._priors import distribution_of
from bayesmesh.models.base import (
    Axis,
    DataSpec,
    Latents,
    Model,
    Predictive,
    Prior,
    ReadBlocks,
    Rows,
)
from bayesmesh.models.options import LogDensityOptions as Options

tfd, tfb = tfp.distributions, tfp.bijectors

SUPPORTS: Mapping[str, Callable[[], Any]] = {
    "positive": tfb.Exp,
    "unit": tfb.Sigmoid,
    "simplex": tfb.IteratedSigmoidCentered,
    "ordered": tfb.Ascending,
    "correlation_cholesky": tfb.CorrelationCholesky,
}
"""Support of a latent with a test point -> the map from unconstrained space."""

_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "function": ("latents", "data"),
    "prior_function": ("data_spec",),
    "summary_function": ("latents", "data"),
    "predictive_function": ("latents", "data"),
    "start_function": ("data",),
}
"""Option -> arguments with which its function is called."""

_OTHER_SUPPORT = (
    "a prior has its own support; for another, such as ordered numbers, write `test_point` instead of `prior` and add the log"
    " prior to the function, or name a `prior_function`"
)


class LogDensity(Model):
    """The log density that a user's function returns; every field of the data is one array with all rows."""

    pretty_name = "Log density of a function"
    offers = ()
    takes_all_rows = True
    options: Options

    def __init__(self, options: Settings, spec: DataSpec) -> None:
        super().__init__(options, spec)
        own = self.options
        priors = {"prior": own.prior, "prior_function": own.prior_function, "test_point": own.test_point}
        given = [name for name, value in priors.items() if value is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found neither"
            remedy = 'for example\n    model:\n      prior: {mean: "normal(0, 1)", noise: "half_normal(1)"}'
            raise ConfigError(f"key 'model': a prior or a test point is needed, {found}", remedy)
        if own.outcome_field is not None and own.outcome_field not in spec.fields:
            problem = f"key 'model.outcome_field': the data have no field '{own.outcome_field}'"
            raise ConfigError(problem, suggest(own.outcome_field, spec.fields))
        for name in own.support:
            if name not in (own.test_point or {}):
                remedy = suggest(name, own.test_point) if own.test_point else _OTHER_SUPPORT
                raise ConfigError(f"key 'model.support': '{name}' is not a latent of the test point", remedy)
        if own.test_point is not None:
            _check_point(own.test_point, own.support)
        for key, arguments in _ARGUMENTS.items():
            if (function := getattr(own, key)) is not None:
                check_arguments(f"model.{key}", function, arguments)

    @property
    def has_predictions(self) -> bool:
        """Whether a function predicts the outcome."""
        return self.options.predictive_function is not None

    @property
    def has_proper_prior(self) -> bool:
        """Whether there is a prior instead of a test point."""
        return self.options.test_point is None

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return the axes named in the options, with the levels and columns of the data, and the axes of correlations."""
        named = {latent: tuple(map(self._axis, names)) for latent, names in self.options.axes.items()}
        return {**self._matrices.axes(named), **named}

    @functools.cached_property
    def _matrices(self) -> Matrices:
        """The summaries of matrices; empty where there can be none."""
        options = self.options
        if options.summary_function is not None or options.prior is not None:
            return Matrices()
        shapes = jax.eval_shape(lambda: dict(self.prior(self.spec).sample(seed=jax.random.key(0))))
        return find_matrices(shapes, lambda: self.prior(self.spec))

    def _axis(self, name: str) -> Axis:
        about = self.spec.variables.get(name)
        return Axis(name, (about.levels if about is not None else ()) or self.spec.labels.get(name))

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior by name, the one from the user's function, or a flat density around the test point."""
        options = self.options
        if options.test_point is not None:
            point = {k: np.asarray(v, data_spec.dtype) for k, v in options.test_point.items()}
            return _flat_prior(point, {k: SUPPORTS[v]() for k, v in options.support.items()})
        if options.prior is not None:
            parsed = {k: parse_prior(text, f"key 'model.prior.{k}'") for k, text in options.prior.items()}
            made: Prior = tfd.JointDistributionNamed(
                {k: distribution_of(v, data_spec.dtype) for k, v in parsed.items()}
            )
            return made
        # To the workflow, all data are one row; a latent with an entry per row needs the user's number of rows.
        spec: Any = data_spec
        num_rows = max(field.shape[0] for field in spec.fields.values())
        found: Prior = load_function(str(options.prior_function))(dataclasses.replace(spec, num_rows=num_rows))
        return found

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the function's value for each dataset, in nats; there is only one."""

        function = load_function(self.options.function)

        def of_dataset(data: Mapping[str, Array]) -> Array:
            value = jnp.asarray(function(latents, data))
            if value.shape != ():
                raise ConfigError(
                    f"key 'model.function': {self.options.function} returns an array of shape {value.shape}",
                    "return one number for all data, for example `.sum()` of log densities",
                )
            return value.astype(next(iter(latents.values())).dtype)

        return jax.vmap(of_dataset)(dict(rows))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of the outcome given latents."""
        if self.options.predictive_function is None:
            raise NotImplementedError("nothing predicts the outcome; name a function: key 'model.predictive_function'")
        return _OfDatasets(load_function(self.options.predictive_function), latents, inputs)

    def outcome(self, rows: Rows) -> Shaped[Array, "rows ..."]:
        """Return the field whose density the function returns."""
        if self.options.outcome_field is None and not self.has_predictions:
            raise NotImplementedError("nothing says what the outcome is; name a field: key 'model.outcome_field'")
        return rows[self.options.outcome_field or "y"]

    def outcome_field(self) -> str | None:
        """Return the field of the option `outcome_field`."""
        return self.options.outcome_field

    def starting_point(self, read_blocks: ReadBlocks) -> Mapping[str, np.ndarray] | None:
        """Return the point from the user's function, if there is one."""
        if self.options.start_function is None:
            return None
        (rows,) = read_blocks()
        found: Mapping[str, np.ndarray] = load_function(self.options.start_function)({k: v[0] for k, v in rows.items()})
        return found

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return those of the user's function, or all latents; for a Cholesky factor of a correlation, the correlations."""
        if self.options.summary_function is None:
            return self._matrices.summaries(latents)
        found: Latents = load_function(self.options.summary_function)(latents, {k: v[0] for k, v in rows.items()})
        return found


def _check_point(point: Mapping[str, Any], support: Mapping[str, str]) -> None:
    """Reject a test point with values outside the support, where no chain could start."""
    for name, kind in support.items():
        value = np.asarray(point[name], np.float32)
        with jax.ensure_compile_time_eval():
            # Two maps, because a single one caches the input of its inverse.
            back = np.asarray(SUPPORTS[kind]().forward(np.asarray(SUPPORTS[kind]().inverse(value))))
        if back.shape != value.shape or not np.allclose(back, value, rtol=1e-3, atol=1e-5):
            raise ConfigError(
                f"key 'model.test_point.{name}': {point[name]} is not in its support, '{kind}'",
                "write values inside of it, or correct the key 'model.support'",
            )


def _flat_prior(point: Mapping[str, np.ndarray], bijectors: Mapping[str, Any]) -> FunctionPrior:
    """Return a density of 1 over a support; draws lie around a point, at a distance N(0, 1) in unconstrained space.

    Args:
        point: latent -> values.
        bijectors: latent -> its map from unconstrained space; those left out are real numbers.
    """
    maps = Maps({k: bijectors.get(k, tfb.Identity()) for k in point})

    def draw(key: PRNGKeyArray) -> Latents:
        center = maps.inverse({k: jnp.asarray(v) for k, v in point.items()})
        keys = jax.random.split(key, len(center))
        near = {
            k: z + jax.random.normal(own, z.shape, z.dtype) for own, (k, z) in zip(keys, center.items(), strict=True)
        }
        return maps.forward(near)

    # The function is the whole density.
    return FunctionPrior(draw, lambda latents: jnp.zeros((), next(iter(latents.values())).dtype), maps)


class _OfDatasets:
    """The user's distribution for each of several datasets.

    Args:
        function: function of latents and a dataset.
        latents: one draw.
        rows: field -> (dataset, ...).
    """

    def __init__(self, function: Callable[..., Any], latents: Latents, rows: Rows) -> None:
        self._of = lambda data: function(latents, data)
        self._rows = dict(rows)
        self.num_datasets = len(next(iter(self._rows.values())))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(dataset, ...) with the axes of an outcome."""
        return tuple(jax.eval_shape(lambda: self.sample(seed=jax.random.key(0))).shape)

    def sample(self, *, seed: PRNGKeyArray) -> Shaped[Array, "rows ..."]:
        """Return one draw of the outcome of each dataset."""
        keys = jax.random.split(seed, self.num_datasets)
        return jax.vmap(lambda data, key: self._of(data).sample(seed=key))(self._rows, keys)

    def log_prob(self, value: Shaped[Array, "rows ..."]) -> Float[Array, "rows ..."]:
        """Return the log density of the outcomes, in nats."""
        return jax.vmap(lambda data, y: self._of(data).log_prob(y))(self._rows, value)
