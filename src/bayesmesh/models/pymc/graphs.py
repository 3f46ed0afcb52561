"""The terms of a PyMC model as separate JAX functions: prior, transforms and likelihood.

Built on PyTensor's own conversion to JAX. `pymc.sampling.jax` is not imported, because it changes XLA's flags. Some draws are
replaced. PyTensor's categorical draws use log p - log(1 - p) in place of log p: with probabilities 0.2 and 0.8 they return the
second in 94% of cases. The same holds for mixtures and ordered outcomes, which are built from them. Its binomial and von Mises
draws need NumPyro, and its Poisson draws are right in float32 for small means alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pymc
import pytensor.tensor as pt
from jax.typing import ArrayLike
from jaxtyping import Array
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import TruncatedNormalRV, WaldRV
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.transforms import Chain, Ordered
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import CircularTransform
from pymc.logprob.utils import CheckParameterValue, replace_rvs_by_values
from pytensor.compile.mode import JAX
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.raise_op import Assert
from pytensor.tensor.random import basic
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Axis

Arrays = Mapping[str, Array]

Sampler = Callable[..., Array]
"""Function of a key, the size, the dtype and the parameters of a distribution that returns draws."""

_SOME_ROWS = 3
"""Number of rows of a draw that is only traced."""


@jax_funcify.register(Assert)
def _pass_through(op: Op, **_: object) -> Callable[..., Array]:
    """Drop an assertion, because a compiled program cannot raise."""
    return lambda value, *conditions: value


@jax_funcify.register(CheckParameterValue)
def _outside_of_support(op: CheckParameterValue, **_: object) -> Callable[..., Array]:
    """Return log density -inf for a parameter out of range, as PyMC does in a compiled density; a quantile is NaN."""
    instead = -np.inf if op.can_be_replaced_by_ninf else np.nan
    return lambda value, *conditions: jnp.where(functools.reduce(jnp.logical_and, conditions), value, instead)


def _draws(distribution: type) -> Callable[[Sampler], Sampler]:
    """Register a function that draws from a distribution of PyMC or PyTensor."""

    def register(draw: Sampler) -> Sampler:
        jax_sample_fn.register(distribution, lambda op, node: draw)
        return draw

    return register


@_draws(TruncatedNormalRV)
def _truncated_normal(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    mean, sd, lower, upper = map(jnp.asarray, parameters)
    low, high = (lower - mean) / sd, (upper - mean) / sd
    return mean + sd * jax.random.truncated_normal(key, low, high, shape=size, dtype=jnp.dtype(dtype))


@_draws(basic.WeibullRV)
def _weibull(key: Array, size: Any, dtype: str, shape: ArrayLike) -> Array:
    return jax.random.weibull_min(key, 1.0, jnp.asarray(shape), size, jnp.dtype(dtype))


@_draws(WaldRV)
def _wald(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    mean, shape, shift = map(jnp.asarray, parameters)
    # JAX draws with shape 1. A multiple of an inverse Gaussian is inverse Gaussian, with the same multiple of mean
    # and shape.
    return shift + shape * jax.random.wald(key, mean / shape, size, jnp.dtype(dtype))


@_draws(DiscreteUniformRV)
def _discrete_uniform(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    low, high = jnp.broadcast_arrays(*parameters)
    return jax.random.randint(key, low.shape if size is None else size, low, high + 1, jnp.dtype(dtype))


@_draws(basic.CategoricalRV)
def _categorical(key: Array, size: Any, dtype: str, probabilities: ArrayLike) -> Array:
    return jax.random.categorical(key, jnp.log(jnp.asarray(probabilities)), shape=size).astype(dtype)


@_draws(basic.BinomialRV)
def _binomial(key: Array, size: Any, dtype: str, trials: ArrayLike, probability: ArrayLike) -> Array:
    # In float32, draws from a billion trials spread too far.
    share, number = (jnp.asarray(each, float) for each in (probability, trials))
    return jax.random.binomial(key, number, share, shape=size).astype(dtype)


@_draws(basic.PoissonRV)
def _poisson(key: Array, size: Any, dtype: str, mean: ArrayLike) -> Array:
    # JAX draws in float32, in which counts above a million spread too far.
    means = jnp.asarray(mean, float)
    drawn: Array = tfp.distributions.Poisson(jnp.broadcast_to(means, size or means.shape)).sample(seed=key)
    return drawn.astype(dtype)


@_draws(basic.VonMisesRV)
def _von_mises(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    location, concentration = jnp.broadcast_arrays(*(jnp.asarray(each, dtype) for each in parameters))
    shape = location.shape if size is None else size
    of_each = tfp.distributions.VonMises(jnp.broadcast_to(location, shape), jnp.broadcast_to(concentration, shape))
    drawn: Array = of_each.sample(seed=key)
    return drawn


def to_jax(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Sequence[Array]]:
    """Convert a graph to a JAX function; shared variables become constants."""
    shared: dict[Variable, Variable] = {
        v: pt.constant(v.get_value())
        for v in graph_inputs(outputs)
        if isinstance(v, SharedVariable) and not isinstance(v.type, RandomType)
    }
    graph = FunctionGraph(inputs=list(inputs), outputs=clone_replace(list(outputs), replace=shared), clone=True)
    JAX.optimizer.rewrite(graph)
    # Without this, constants made while another function is traced would be its tracers.
    with jax.ensure_compile_time_eval():
        return jax_funcify(graph)


def _has_sampler(op: Op) -> bool:
    """Return whether JAX can draw from a distribution; true for other operations, which draw nothing."""
    is_drawn = jax_sample_fn.dispatch(type(op)) is not jax_sample_fn.dispatch(object)
    return is_drawn or not isinstance(op, RandomVariable)


def _labels(coordinate: Sequence[object] | None) -> tuple[str, ...] | None:
    return None if coordinate is None else tuple(map(str, coordinate))


def _plain_name(name: str) -> str:
    """Return the name of a variable in the characters that names in results may contain.

    >>> [_plain_name(each) for each in ("slope", "σ", "1|site_sigma", "age|site", "C(a)[T.b]", "2nd")]
    ['slope', 'σ', 'intercept_by_site_sigma', 'age_by_site', 'C(a)_T.b_', '_2nd']
    """
    name = re.sub(r"^1\|", "intercept|", name).replace("|", "_by_")
    name = re.sub(r"[^\w .:()-]", "_", name)
    return name if re.match(r"[^\W\d]", name) else f"_{name}"


def _log_densities(
    values: Mapping[Variable, Variable], variables: Sequence[Variable] | None = None
) -> Sequence[Variable]:
    """Return the log densities of random variables at their values, all in constrained space; of all by default."""
    return transformed_conditional_logp(
        list(values) if variables is None else variables,
        rvs_to_values=values,
        rvs_to_transforms=dict.fromkeys(values),
        jacobian=False,
    )


class Graphs:
    """A PyMC model split into terms.

    Args:
        model: the model.
        rows: field -> its symbolic variable.
        name: name of the model, for messages.
        is_whole: whether all data are one row: the likelihood is then everything observed, in symbols or in constants.

    Attributes:
        names: sorted names of the latents, with other characters in PyMC's names replaced: Bambi's `1|site` becomes
            `intercept_by_site`.
        predicted: name of the one variable observed in the rows; None if there is not exactly one.

    Raises:
        ConfigError: the model has discrete latents, latents that depend on rows, or nothing that does.
    """

    def __init__(
        self, model: pymc.Model, rows: Mapping[str, TensorVariable], name: str, *, is_whole: bool = False
    ) -> None:
        self._name, self._is_whole = name, is_whole
        self._dims, self._coords = model.named_vars_to_dims, model.coords
        # PyTensor's rewrites compare symbols with numbers, which those of fields answer entry by entry.
        self._rows = {field: symbol.type(field) for field, symbol in rows.items()}
        free = sorted(model.free_RVs, key=lambda rv: str(rv.name))
        observed_values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        parts = free, model.observed_RVs, observed_values, model.potentials, model.deterministics
        plain: dict[Variable, Variable] = {symbol: self._rows[field] for field, symbol in rows.items()}
        cloned = iter(clone_replace([each for part in parts for each in part], replace=plain))
        self._free, observed_rvs, observed_values, self._potentials, self._deterministics = (
            [next(cloned) for _ in part] for part in parts
        )
        self._transformed = {new: model.rvs_to_values[old] for new, old in zip(self._free, free, strict=True)}
        self._transforms = {new: model.rvs_to_transforms[old] for new, old in zip(self._free, free, strict=True)}
        self.names = [_plain_name(str(rv.name)) for rv in self._free]
        for each in (each for i, each in enumerate(self.names) if each in self.names[:i]):
            raise ConfigError(f"model {name}: two latents would be called '{each}'", "rename one of them")
        for rv in self._free:
            self._check_latent(cast(TensorVariable, rv))
        self._values = [rv.type(rv.name) for rv in self._free]
        self._plain = dict(zip(self._free, self._values, strict=True))
        self._observed = observed = dict(zip(observed_rvs, observed_values, strict=True))
        self._split_terms(observed)
        in_rows = [] if is_whole else [rv for rv, value in observed.items() if self._uses_rows(value)]
        self._outcome = (in_rows[0], observed[in_rows[0]]) if len(in_rows) == 1 else None
        self.predicted = str(in_rows[0].name) if self._outcome else None

    @property
    def has_matrices(self) -> bool:
        """Whether a latent has two axes or more."""
        return any(value.type.ndim >= 2 for value in self._values)

    def axes(self) -> dict[str, tuple[Axis | None, ...]]:
        """Return latent -> its dims with the coordinates that the PyMC model gives them."""
        return {
            _plain_name(str(rv.name)): tuple(
                d and Axis(_plain_name(str(d)), _labels(self._coords.get(d))) for d in self._dims[rv.name]
            )
            for rv in (*self._free, *self._deterministics)
            if rv.name in self._dims
        }

    def _uses_rows(self, variable: Variable) -> bool:
        return not set(self._rows.values()).isdisjoint(ancestors([variable]))

    def _check_latent(self, rv: TensorVariable) -> None:
        said = f"model {self._name}: '{rv.name}'"
        if rv.dtype not in ("float32", "float64"):
            raise ConfigError(f"{said} is {rv.dtype}", "sum discrete variables out: kernels need gradients")
        if any(isinstance(getattr(each.owner, "op", None), CensoredRV | DiracDeltaRV) for each in ancestors([rv])):
            raise ConfigError(
                f"{said} has a distribution in which single values have a probability of their own",
                "give it the continuous part as its prior, and sum over the two cases in the likelihood",
            )
        if self._uses_rows(rv):
            raise ConfigError(
                f"{said} depends on the rows",
                "latents are shared by all rows; take a static shape, rows[...].type.shape[1] or `shape=8` for eight groups; or"
                " give the function the values of all rows, which are then one row:\n    model:\n      given: arrays",
            )

    def _split_terms(self, observed: Mapping[Variable, Variable]) -> None:
        """Split terms of the log density by whether they depend on rows; all are in constrained space, without Jacobians."""
        terms = [*_log_densities({**self._plain, **observed}), *self._in_terms_of_values(self._potentials)]
        by_name = dict(zip((str(v.name) for v in (*self._free, *observed, *self._potentials)), terms, strict=True))
        kept = {str(rv.name) for rv in observed} if self._is_whole else set()
        self._row_terms = {name: term for name, term in by_name.items() if name in kept or self._uses_rows(term)}
        in_prior = [name for name in by_name if name not in self._row_terms]
        self._prior_terms = [by_name[name] for name in in_prior]
        self._has_other_terms = not {str(rv.name) for rv in self._free}.issuperset(in_prior)
        if not self._row_terms:
            raise ConfigError(
                f"model {self._name}: nothing in it depends on the rows",
                "use the fields that it is given; or, where it holds its data as constants, as Bambi's models do, write\n"
                "    model:\n      given: frame",
            )

    def _in_terms_of_values(self, variables: Sequence[Variable]) -> list[Variable]:
        """Replace latents by their value variables."""
        return clone_replace(list(variables), replace=self._plain) if variables else []

    # -- JAX functions, each of dicts of arrays --------------------------------------------------------------------

    def log_prior(self) -> Callable[[Arrays], Array]:
        """Return a function of latents: log density of the prior, () float64."""
        function = to_jax(self._values, [sum((pt.sum(t) for t in self._prior_terms), start=pt.constant(0.0))])
        return lambda latents: function(*self._of(latents))[0]

    def log_likelihood(self) -> Callable[[Arrays, Arrays], Array]:
        """Return a function of latents and rows: log likelihood of each row, (row,) float64.

        Tracing it raises ConfigError if the first axis of a term is not the row axis.
        """
        function = to_jax([*self._values, *self._rows.values()], list(self._row_terms.values()))

        def per_row(latents: Arrays, rows: Arrays) -> Array:
            given = self._of_rows(rows)
            num_rows, total = len(given[0]), jnp.zeros(len(given[0]))
            for name, term in zip(self._row_terms, function(*self._of(latents), *given), strict=True):
                if term.shape[:1] != (num_rows,):
                    raise ConfigError(
                        f"model {self._name}: '{name}' has a log density of shape {term.shape} for {num_rows} rows",
                        "give one value, or several, for each row: its first axis is that of the rows",
                    )
                total += term.reshape(num_rows, -1).sum(1)
            return total

        return per_row

    def log_likelihood_of_all(self) -> Callable[[Arrays, Arrays], Array]:
        """Return a function of latents and whole fields: the log likelihood of all data, () float64."""
        total = sum((pt.sum(term) for term in self._row_terms.values()), start=pt.constant(0.0))
        function = to_jax([*self._values, *self._rows.values()], [total])
        return lambda latents, rows: function(*self._of(latents), *self._of_rows(rows))[0]

    def constrain(self) -> Callable[[Arrays], dict[str, Array]]:
        """Return the map from unconstrained values to latents."""
        function = self._of_unconstrained(self._free)
        return lambda z: dict(zip(self.names, function(z), strict=True))

    def log_jacobian(self) -> Callable[[Arrays], Array]:
        """Return a function of unconstrained values: log determinant of the Jacobian of `constrain`, () float64."""
        terms = [
            pt.sum(transform.log_jac_det(self._transformed[rv], *rv.owner.inputs))
            for rv, transform in self._transforms.items()
            if transform is not None
        ]
        function = self._of_unconstrained([sum(terms, start=pt.constant(0.0))])
        return lambda z: function(z)[0]

    def unconstrain(self) -> Callable[[Arrays], dict[str, Array]]:
        """Return the map from latents to unconstrained values, under the names of the latents."""
        outputs = [
            value
            if (transform := self._transforms[rv]) is None
            else transform.forward(value, *self._in_terms_of_values(rv.owner.inputs))
            for rv, value in self._plain.items()
        ]
        function = to_jax(self._values, outputs)
        return lambda latents: dict(zip(self.names, function(*self._of(latents)), strict=True))

    def deterministics(self) -> Callable[[Arrays, Arrays], dict[str, Array]]:
        """Return a function of latents and rows: the deterministic variables that they determine."""
        given = {**self._plain, **self._observed}
        known = {
            _plain_name(str(each.name)): graph
            for each in self._deterministics
            for graph in clone_replace([each], replace=given)
            if not any(isinstance(v.type, RandomType) for v in graph_inputs([graph]))
        }
        if not known:
            return lambda latents, rows: {}
        function = to_jax([*self._values, *self._rows.values()], list(known.values()))
        return lambda latents, rows: dict(zip(known, function(*self._of(latents), *self._of_rows(rows)), strict=True))

    @property
    def has_proper_prior(self) -> bool:
        """Whether draws of the latents follow the prior: all can be drawn, and no potential or observation adds to it.

        The density of an angle in unconstrained space is periodic, and thus has no integral.
        """
        is_wrapped = any(isinstance(each, CircularTransform) for each in self._transforms.values())
        return not self._undrawn and not self._has_other_terms and not is_wrapped

    @functools.cached_property
    def has_predictions(self) -> bool:
        """Whether exactly one variable is observed in the rows, and JAX can draw from its distribution."""
        return self._outcome is not None and self._is_drawn(self._outcome[0])

    @functools.cached_property
    def _undrawn(self) -> list[Variable]:
        """The latents from whose priors JAX cannot draw: improper ones such as `Flat`, and those in a part of their support."""
        return [rv for rv in self._free if self._is_restricted(rv) or not self._is_drawn(rv)]

    def _is_restricted(self, rv: Variable) -> bool:
        """Return whether the user's transform leaves out a part of a latent's support, as `ordered` does."""
        transform = self._transforms[rv]
        if transform is None or isinstance(transform, Chain | Ordered):
            return transform is not None
        alone = rv.owner.clone().outputs[rv.owner.outputs.index(rv)]
        plain = pymc.Model()
        plain.register_rv(alone, "alone")
        return plain.rvs_to_transforms[alone] is None

    def _is_drawn(self, rv: Variable) -> bool:
        """Return whether JAX can draw a random variable if all latents on which it depends are given."""
        if isinstance(rv.owner.op, RandomVariable) and _has_sampler(rv.owner.op):
            return True
        given = {other: value for other, value in self._plain.items() if other is not rv}
        (alone,) = clone_replace([rv], replace=given)
        graph = FunctionGraph(outputs=[alone], clone=True)
        # Some distributions are composed of others.
        JAX.optimizer.rewrite(graph)
        return all(_has_sampler(node.op) for node in graph.apply_nodes) and self._is_traced(alone, list(given.values()))

    def _is_traced(self, drawn: Variable, values: Sequence[Variable]) -> bool:
        """Return whether JAX can trace a draw; it cannot where a distribution computes its shapes, such as `LKJCholeskyCov`."""
        given, fields = set(graph_inputs([drawn])), set(self._rows.values())
        inputs = [value for value in (*values, *fields) if value in given]
        if any(None in value.type.shape for value in inputs if value not in fields):
            return True
        of_each = [tuple(_SOME_ROWS if n is None else n for n in value.type.shape) for value in inputs]
        shapes = [jax.ShapeDtypeStruct(shape, value.type.dtype) for shape, value in zip(of_each, inputs, strict=True)]
        try:
            jax.eval_shape(self._draw(inputs, [drawn]), jax.random.key(0), shapes)
        except (TypeError, NotImplementedError):
            return False
        return True

    def draw_prior(self) -> Callable[[Array], dict[str, Array]]:
        """Return a function of a key: a draw from the prior without potentials.

        A latent that JAX cannot draw is standard normal in unconstrained space.
        """
        near = {rv: self._transformed[rv].type() for rv in self._undrawn}
        placed = {rv: self._placed(rv, z) for rv, z in near.items()}
        function = self._draw(list(near.values()), clone_replace(self._free, replace=placed) if placed else self._free)

        def draw(key: Array) -> dict[str, Array]:
            keys = jax.random.split(jax.random.fold_in(key, len(self._free)), len(near)) if near else ()
            zs = [jax.random.normal(each, z.type.shape, z.dtype) for each, z in zip(keys, near.values(), strict=True)]
            return dict(zip(self.names, function(key, zs), strict=True))

        return draw

    def _placed(self, rv: Variable, z: Variable) -> Variable:
        """Return the value of a latent at a point of unconstrained space."""
        if None in z.type.shape:
            raise ConfigError(
                f"model {self._name}: nothing draws '{rv.name}', and its shape is not known", "give it a static shape"
            )
        transform = self._transforms[rv]
        return z if transform is None else transform.backward(z, *rv.owner.inputs)

    def predict(self) -> tuple[Callable[..., Array], Callable[..., Array], Callable[[Arrays], Array]]:
        """Return three functions of the variable observed in the rows.

        Returns:
            (key, latents, rows) -> a draw; (latents, rows, value) -> log density of each entry; rows -> its values.

        Raises:
            NotImplementedError: not exactly one variable is observed in the rows.
        """
        if self._outcome is None:
            raise NotImplementedError(f"{self._name}: not exactly one variable is observed in the rows")
        rv, value = self._outcome
        fields = list(self._rows.values())
        (conditional,) = self._in_terms_of_values([rv])
        draw = self._draw([*self._values, *fields], [conditional])
        symbol = value.type("value")
        (density,) = _log_densities({**self._plain, rv: symbol}, [rv])
        log_prob, outcome = to_jax([*self._values, *fields, symbol], [density]), to_jax(fields, [value])
        return (
            lambda key, latents, rows: draw(key, [*self._of(latents), *self._of_rows(rows)])[0],
            lambda latents, rows, y: log_prob(*self._of(latents), *self._of_rows(rows), y)[0],
            lambda rows: outcome(*self._of_rows(rows))[0],
        )

    def _draw(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Sequence[Array]]:
        """Return a function of a key and input values; every random generator of the graph gets its own key."""
        generators = [v for v in graph_inputs(outputs) if isinstance(v.type, RandomType)]
        symbols = [v.type() for v in generators]
        drawn = clone_replace(list(outputs), replace=dict(zip(generators, symbols, strict=True)))
        function = to_jax([*symbols, *inputs], drawn)

        def draw(key: Array, values: Sequence[Array]) -> Sequence[Array]:
            keys = [jax.random.key_data(jax.random.fold_in(key, i)) for i in range(len(symbols))]
            return function(*({"jax_state": data} for data in keys), *values)

        return draw

    def _of_unconstrained(self, outputs: Sequence[Variable]) -> Callable[[Arrays], Sequence[Array]]:
        """Return a graph of latents as a function of unconstrained values."""
        outputs = replace_rvs_by_values(outputs, rvs_to_values=self._transformed, rvs_to_transforms=self._transforms)
        function = to_jax([*self._transformed.values()], outputs)
        return lambda z: function(*self._of(z))

    def _of(self, latents: Arrays) -> list[Array]:
        return [latents[name].astype(v.dtype) for name, v in zip(self.names, self._values, strict=True)]

    def _of_rows(self, rows: Arrays) -> list[Array]:
        return [jnp.asarray(rows[name], np.dtype(v.dtype)) for name, v in self._rows.items()]
