"""A PyMC model as a model of the pipeline.

In a package of your own, named in the experiment as ``module:attribute``::

    class Options(Settings):
        ...

    class Slope(PymcModel):
        pretty_name = "Slope"
        offers = ()

        def build(self, rows):
            slope = pymc.Normal("slope", 0, 1)
            pymc.Normal("y", slope * rows["x"], 1, observed=rows["y"])

The density is PyMC's own, through its conversion to JAX; transforms and draws from the prior are PyMC's too. Limits:
latents are continuous and shared by all rows, terms that depend on rows have the row axis first, and arithmetic is in
PyTensor's float64 whatever the experiment's dtype.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pymc
import pytensor.tensor as pt
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from bayesmesh.config.settings import Settings
from bayesmesh.config.user_code import check_arguments, load_function
from bayesmesh.errors import ConfigError
from bayesmesh.models import base
from bayesmesh.models._latents import FunctionMaps, FunctionPrior, Matrices, find_matrices
from bayesmesh.models.base import DataSpec, Latents, Model, Preparation, ReadBlocks, Rows
from bayesmesh.models.options import PymcOptions as Options
from bayesmesh.models.pymc.graphs import Graphs


class Predictive:
    """The distribution of the variable observed in the rows, given latents."""

    def __init__(self, graphs: Graphs, latents: Latents, rows: Rows) -> None:
        self._latents, self._rows = latents, rows
        self._draw, self._log_prob, outcome = graphs.predict()
        self.batch_shape = jax.eval_shape(outcome, rows).shape

    def sample(self, *, seed: PRNGKeyArray) -> Shaped[Array, "rows ..."]:
        """Return one draw."""
        return self._draw(seed, self._latents, self._rows)

    def log_prob(self, value: Shaped[Array, "rows ..."]) -> Float[Array, "rows ..."]:
        """Return the log density, in nats."""
        return self._log_prob(self._latents, self._rows, value)


_OF_SYMBOLS = frozenset({"ndim", "repeat", "shape", "size", "squeeze", "swapaxes"})
"""NumPy functions that work on a symbol: they read its shape or call its method."""


class FieldSymbol(TensorVariable):
    """A symbol for the values of a field; NumPy would treat it as a single object that equals no number."""

    __hash__ = TensorVariable.__hash__

    def __array_function__(
        self, function: Any, types: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Make NumPy refuse, by its protocol, functions that would act on the symbol itself and not on the values."""
        return function._implementation(*args, **kwargs) if function.__name__ in _OF_SYMBOLS else NotImplemented

    def __eq__(self, other: object) -> Any:
        """Compare with numbers entry by entry, and with other symbols by identity, as PyTensor does."""
        return pt.eq(self, other) if isinstance(other, int | float | np.number | np.ndarray) else NotImplemented

    def __ne__(self, other: object) -> Any:
        """See `__eq__`."""
        return pt.neq(self, other) if isinstance(other, int | float | np.number | np.ndarray) else NotImplemented


class PymcModel(Model):
    """Base of PyMC models in the pipeline: subclass it and declare the variables in `build`.

    Declare ``offers`` as for any model; a PyMC model does not predict a TFP distribution, so it is ``()``.
    """

    packages: ClassVar[tuple[str, ...]] = ("pymc", "pytensor")

    @abstractmethod
    def build(self, rows: Mapping[str, TensorVariable]) -> None:
        """Declare the variables; called inside a `pymc.Model`.

        Args:
            rows: field -> PyTensor variable (row, ...), with an unknown number of rows. Everything that depends on them
                has the row axis first: observed variables, and potentials with one value per row.
        """

    @functools.cached_property
    def _graphs(self) -> Graphs:
        rows = {
            name: FieldSymbol(
                TensorType(_symbol_dtype(field.dtype), shape=field.shape if self._is_whole else (None, *field.shape)),
                None,
                name=name,
            )
            for name, field in self.spec.fields.items()
        }
        declared = self._declare(rows)
        used = rows if self._holds_no_data else {}
        return Graphs(declared, used, type(self).__name__, is_whole=self._is_whole)

    @property
    def _is_whole(self) -> bool:
        return False

    @property
    def _holds_no_data(self) -> bool:
        return getattr(self.options, "given", "symbols") == "symbols"

    def _declare(self, rows: Mapping[str, TensorVariable]) -> pymc.Model:
        with pymc.Model() as model:
            self.build(rows)
        return model

    @functools.cached_property
    def _log_likelihood(self) -> Callable[[Latents, Rows], Array]:
        return self._graphs.log_likelihood_of_all() if self._is_whole else self._graphs.log_likelihood()

    def axes(self) -> Mapping[str, tuple[base.Axis | None, ...]]:
        """Return the dims of the latents, with the model's own coordinates, and the axes of correlations."""
        named = self._graphs.axes()
        return {**self._matrices.axes(named), **named}

    @property
    def has_proper_prior(self) -> bool:
        """Whether draws of the latents follow their density: false with flat priors or potentials."""
        return self._graphs.has_proper_prior

    def prior(self, data_spec: DataSpec) -> base.Prior:
        """Return PyMC's free variables as a prior."""
        graphs, draw = self._graphs, self._graphs.draw_prior()
        maps = FunctionMaps(graphs.constrain(), graphs.unconstrain(), graphs.log_jacobian())

        def sample(key: PRNGKeyArray) -> dict[str, Array]:
            return {name: jnp.asarray(value, data_spec.dtype) for name, value in draw(key).items()}

        return FunctionPrior(sample, graphs.log_prior(), maps)

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the terms that depend on rows, summed for each row, in nats, shape (rows,)."""
        per_row = self._log_likelihood(latents, rows)
        return per_row.astype(next(iter(latents.values())).dtype)

    def predict(self, latents: Latents, inputs: Rows) -> base.Predictive:
        """Return the distribution of the variable observed in the rows."""
        return Predictive(self._graphs, latents, inputs)

    def outcome(self, rows: Rows) -> Shaped[Array, "rows ..."]:
        """Return the values of the variable observed in the rows."""
        return self._graphs.predict()[2](rows)

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return all latents; for matrices with constant entries, correlations. Override this if some are not identified."""
        return self._matrices.summaries(latents)

    def deterministics(self, latents: Latents, rows: Rows) -> Latents:
        """Return the values of `pymc.Deterministic`."""
        given = {k: v[0] for k, v in rows.items()} if self._is_whole else rows
        return self._deterministics(latents, given if self._holds_no_data else {})

    @functools.cached_property
    def _deterministics(self) -> Callable[[Latents, Rows], dict[str, Array]]:
        return self._graphs.deterministics()

    @functools.cached_property
    def _matrices(self) -> Matrices:
        """The summaries of matrices; empty where no latent has two axes."""
        if not self._graphs.has_matrices:
            return Matrices()
        shapes = jax.eval_shape(lambda: self.prior(self.spec).sample(seed=jax.random.key(0)))
        return find_matrices(dict(shapes), lambda: self.prior(self.spec))


class PymcFunction(PymcModel):
    """The PyMC model that a function returns."""

    pretty_name = "PyMC model"
    offers = ()
    options: Options

    @classmethod
    def reads_whole(cls, options: Settings) -> bool:
        """Return whether all data are one row; always true for a model that holds its data."""
        return getattr(options, "whole", False) or getattr(options, "given", "symbols") != "symbols"

    @classmethod
    def prepare(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation | None:
        """Keep all data of a model that holds them as arrays of the description."""
        own = cast(Options, options)
        check_arguments("model.function", own.function, ("data",))
        if own.given == "symbols":
            return None
        data = {name: np.asarray(values)[0] for name, values in next(read_blocks()).items()}
        return Preparation(lambda rows, num_rows: dict(rows), {}, arrays=data)

    def build(self, rows: Mapping[str, TensorVariable]) -> None:
        """Do nothing: the function makes its own model."""

    @property
    def has_predictions(self) -> bool:
        """Whether there are rows in which exactly one variable is observed, and it can be drawn."""
        return not self._is_whole and self._graphs.has_predictions

    @property
    def _is_whole(self) -> bool:
        return self.reads_whole(self.options)

    def _declare(self, rows: Mapping[str, TensorVariable]) -> pymc.Model:
        own, data = self.options, self.spec.arrays
        if own.given == "symbols":
            return _model_of(own.function, load_function(own.function)(rows))
        if not data:
            raise ConfigError("model 'pymc' holds the data that its `prepare` reads", "bind it to prepared data")
        values = dict(data) if own.given == "arrays" else _frame(data, self.spec)
        return _model_of(own.function, load_function(own.function)(values))

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the terms that depend on rows, summed for each row, or for all data if they are one row; in nats."""
        if not self._is_whole:
            return super().log_likelihood(latents, rows)
        given = dict(rows) if self.options.given == "symbols" else {}
        number = len(next(iter(rows.values())))
        if given:
            values = jax.vmap(lambda data: self._log_likelihood(latents, data))(given)
        else:
            values = jnp.broadcast_to(self._log_likelihood(latents, {}), (number,))
        return values.astype(next(iter(latents.values())).dtype)


def _model_of(function: str, found: object) -> pymc.Model:
    if not isinstance(found, pymc.Model):
        raise ConfigError(
            f"key 'model.function': {function} returns {type(found).__name__} instead of a PyMC model",
            "write `with pymc.Model() as model:`, declare the variables in it, and end with `return model`; of Bambi, call"
            " `build()` and return `backend.model`",
        )
    return found


def _frame(rows: Mapping[str, np.ndarray], spec: DataSpec) -> Any:
    """Return a data frame of the fields with one number per row; categories have the names of their levels."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for name, values in rows.items():
        about = spec.variables.get(name)
        if values.ndim == 1:
            columns[name] = (
                pd.Categorical.from_codes(values, pd.Index(about.levels)) if about and about.levels else values
            )
    return pd.DataFrame(columns)


def _symbol_dtype(stored: str) -> str:
    """Return float64 for floating-point fields, as in all of PyTensor's arithmetic; keep integers as they are."""
    return "float64" if np.dtype(stored).kind == "f" else stored
