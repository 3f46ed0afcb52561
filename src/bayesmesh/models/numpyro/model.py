"""A NumPyro model as a model of the pipeline: a function with NumPyro's primitives, in a module of your own::

    def regression(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(slope * x, 1), obs=y)

The density, the transforms and the draws of the prior are NumPyro's own. The row axis is the one whose length follows the
number of rows, as a plate provides for the sites inside it. Latents are continuous and shared by all rows. A model
without such an axis, or with latents inside the plate of rows, treats all data as one row with `whole: true`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from numpyro.distributions import CategoricalLogits, CategoricalProbs

from bayesmesh.config.user_code import load_function
from bayesmesh.errors import ConfigError
from bayesmesh.models import base
from bayesmesh.models._latents import FunctionMaps, FunctionPrior, Matrices, find_matrices
from bayesmesh.models.base import DataSpec, Latents, Model, Rows
from bayesmesh.models.numpyro.sites import MANY, VALUES, Site, Sites
from bayesmesh.models.options import NumpyroOptions as Options

_log = logging.getLogger("bayesmesh")

_NON_CENTRED = "write numbers into the prior; or give the latent a standard normal prior, and scale and move it by the data where it is used"
_WHOLE = (
    "write numbers into the prior, and give each row a term of its own; or take all data as one row:\n"
    "    model:\n      whole: true"
)


class Predictive:
    """The distribution of the site observed in the rows, given latents."""

    def __init__(self, site: Site) -> None:
        self._fn, self.batch_shape = site["fn"], tuple(jnp.shape(site["value"]))

    def mean(self) -> Float[Array, "rows ..."]:
        """Return the expectation.

        Raises:
            NotImplementedError: the distribution does not define its mean, or is categorical.
        """
        if isinstance(self._fn, CategoricalLogits | CategoricalProbs):
            raise NotImplementedError("classes have no expectation")
        found: Array = self._fn.mean
        return found

    def sample(self, *, seed: PRNGKeyArray) -> Shaped[Array, "rows ..."]:
        """Return one draw."""
        drawn: Array = self._fn.sample(seed)
        return drawn

    def log_prob(self, value: Shaped[Array, "rows ..."]) -> Float[Array, "rows ..."]:
        """Return the log density, in nats."""
        found: Array = self._fn.log_prob(value)
        return found


class NumpyroFunction(Model):
    """The NumPyro model that a function describes."""

    pretty_name = "NumPyro model"
    offers = ()
    packages: ClassVar[tuple[str, ...]] = ("numpyro",)
    options: Options

    @functools.cached_property
    def _sites(self) -> Sites:
        own, name = self.options, self.options.function
        # Constants made during a traced call must not become its tracers: the model is used again in other calls.
        with jax.ensure_compile_time_eval():
            spec, function = self.spec, load_function(own.function)
            sites = Sites(function, name, self._rows, spec.constants, spec.dtype, is_whole=own.whole)
            for term, what in sites.terms_of_rows(None if own.whole else spec.num_rows):
                # The prior is computed without the data, even where these are one row.
                is_prior = term in sites.latents and what == VALUES
                raise ConfigError(
                    f"model {name}: '{term}' depends on {what}" + ("" if own.whole else ", and has no axis of rows"),
                    _NON_CENTRED if is_prior else _WHOLE,
                )
        return sites

    def _rows(self, count: int) -> dict[str, Array]:
        """Return placeholder rows; for whole data, the one row."""
        fields = self.spec.fields.items()
        shapes = {k: field.shape if self.options.whole else (count, *field.shape) for k, field in fields}
        return {
            k: jnp.zeros(shapes[k], field.dtype if field.dtype[0] in "iub" else self.spec.dtype) for k, field in fields
        }

    @property
    def has_proper_prior(self) -> bool:
        """Whether draws of the latents follow their density: false with improper priors or factors."""
        return self._sites.has_proper_prior

    def prior(self, data_spec: DataSpec) -> base.Prior:
        """Return NumPyro's latent sites as a prior."""
        sites = self._sites
        maps = FunctionMaps(sites.constrain, sites.unconstrain, sites.log_jacobian)
        return FunctionPrior(lambda key: sites.draw(key, data_spec.dtype), sites.log_prior, maps)

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of the observed sites, summed for each row, in nats, shape (rows,)."""
        dtype = next(iter(latents.values())).dtype
        if self.options.whole:
            return jax.vmap(lambda data: self._sites.log_likelihood(latents, data))(dict(rows)).astype(dtype)
        return self._sites.log_likelihood(latents, dict(rows)).astype(dtype)

    @functools.cached_property
    def has_predictions(self) -> bool:
        """Whether exactly one site is observed in the rows, with a distribution that NumPyro can sample while traced."""
        if self.options.whole or self._sites.predicted is None:
            return False
        if self._sites.is_masked:
            _log.warning("warning: model %s: outcomes are not simulated: %s", self.options.function, self.row_problem)
            return False
        try:
            jax.eval_shape(self._draw_outcomes, self._sites.some_latents(), self._rows(MANY), jax.random.key(0))
        except (NotImplementedError, TypeError, ValueError) as error:
            _log.warning("warning: model %s: outcomes are not simulated: %s", self.options.function, error)
            return False
        return True

    @property
    def row_problem(self) -> str:
        """Why an observed row is not one observation: masks or weights."""
        return "" if self.options.whole else self._sites.row_problem

    def _draw_outcomes(self, latents: Latents, rows: Rows, key: PRNGKeyArray) -> Array:
        return self.predict(latents, rows).sample(seed=key)

    def predict(self, latents: Latents, inputs: Rows) -> base.Predictive:
        """Return the distribution of the site observed in the rows."""
        self._check_predicted()
        return Predictive(self._sites.observed(latents, dict(inputs)))

    def outcome(self, rows: Rows) -> Shaped[Array, "rows ..."]:
        """Return the values of the site observed in the rows."""
        self._check_predicted()
        return self._sites.outcome(rows)

    def _check_predicted(self) -> None:
        if self.options.whole or self._sites.predicted is None:
            raise NotImplementedError(f"{self.options.function}: not exactly one site is observed in the rows")

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return all latents; for matrices with constant entries, correlations. If some are not identified, write a `Model`."""
        return self._matrices.summaries(latents)

    def deterministics(self, latents: Latents, rows: Rows) -> Latents:
        """Return the values of `numpyro.deterministic`."""
        return self._sites.deterministics(
            latents, {k: v[0] for k, v in rows.items()} if self.options.whole else dict(rows)
        )

    def axes(self) -> Mapping[str, tuple[base.Axis | None, ...]]:
        """Return the axes of correlations."""
        return self._matrices.axes({})

    @functools.cached_property
    def _matrices(self) -> Matrices:
        return find_matrices(self._sites.some_latents(), lambda: self.prior(self.spec))
