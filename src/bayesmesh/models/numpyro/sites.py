"""The terms of a NumPyro model: prior, transforms and likelihood, separately, as functions of arrays.

All densities and transforms are NumPyro's own: its handlers run the model with the latents in place of draws.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers
from numpyro.distributions import (
    HurdleProbs,
    IntervalCensoredDistribution,
    LeftCensoredDistribution,
    MaskedDistribution,
    RightCensoredDistribution,
    TransformedDistribution,
    Unit,
    biject_to,
    constraints,
)
from numpyro.distributions.distribution import ImproperUniform, validation_enabled
from numpyro.distributions.util import is_identically_one
from numpyro.infer.util import constrain_fn
from numpyro.primitives import Messenger

from bayesmesh.errors import ConfigError, suggest

Arrays = Mapping[str, Array]
Site = Mapping[str, Any]

_MIXED = (HurdleProbs, IntervalCensoredDistribution, LeftCensoredDistribution, RightCensoredDistribution)

VALUES, NUMBER = "the values of the rows", "the number of rows"
"""Properties of the rows on which a term may depend."""

MANY, MORE = 2, 3
"""Numbers of rows by which the row axis is told apart from others."""


class Sites:
    """A NumPyro model split into terms.

    Args:
        function: function with NumPyro's primitives. It receives fields by the names of its arguments, or all as one mapping.
        name: name of the function, for messages.
        rows: number of rows -> field -> placeholder values, with the shapes of that many rows.
        constants: numbers that arguments may name besides fields.
        dtype: dtype of draws of continuous latents. NumPyro draws float64, which would give the carry of a scan two
            dtypes if the data are float32.
        is_whole: whether all data are one row, so that no row axis is needed.

    Attributes:
        latents: sorted names.
        row_sites: name of each observed site -> row axis of its log density; None where all data are one row.
        predicted: name of the one site observed in the rows, whose first axis they are, with a distribution; None without one.
        is_masked: whether a mask takes rows out of the likelihood.
        row_problem: why an observed row is not one observation: masks, weights or several sites; empty otherwise.
        has_proper_prior: whether draws of the latents follow the prior: none is improper, masked or scaled, and no factor
            changes their density.

    Raises:
        ConfigError: an argument is not a field; a latent is discrete or depends on the rows; or no site has a row axis; or
            a plate has as many entries as the data have rows, whatever their number.
    """

    def __init__(
        self,
        function: Callable[..., object],
        name: str,
        rows: Callable[[int], dict[str, Array]],
        constants: Mapping[str, float | int],
        dtype: str,
        *,
        is_whole: bool = False,
    ) -> None:
        self._function, self._name, self._constants, self._dtype = function, name, constants, dtype
        self._some = rows(MANY)
        self._parameters = self._read_parameters(self._some)
        few, more = (self._shapes(rows(count)) if is_whole else self._shapes_of(rows, count) for count in (MANY, MORE))
        self.latents = sorted(name for name, site in few.items() if site["is_latent"])
        for latent in self.latents:
            if latent.removesuffix("_unobserved") + "_observed" in few:
                site = latent.removesuffix("_unobserved")
                raise ConfigError(
                    f"model {name}: `obs_mask` of '{site}' makes a latent for every row, which is flat where the row is observed",
                    "leave the rows without an outcome out of the data; or draw the missing values alone and put them where they "
                    f"belong: `missing = numpyro.sample('{site}_missing', dist.Normal(mean, sd).expand([number]))`, "
                    "`x.at[places].set(missing)`",
                )
            self._check_latent(latent, few[latent], more.get(latent))
        observed = {name: site for name, site in few.items() if not site["is_latent"]}
        if is_whole:
            self.row_sites: dict[str, int | None] = dict.fromkeys(observed)
        else:
            axes = {name: _axis(site["shape"], more[name]["shape"]) for name, site in observed.items() if name in more}
            self.row_sites = {name: axis for name, axis in axes.items() if axis is not None}
        if not self.row_sites:
            raise ConfigError(
                f"model {name}: no observed site has the rows on an axis",
                "observe a field: `with numpyro.plate('rows', len(y)): numpyro.sample('y', ..., obs=y)`; or take all data as"
                " one row:\n    model:\n      whole: true",
            )
        self._factors = sorted(set(observed) - set(self.row_sites))
        is_changed = any(few[each]["is_improper"] or few[each]["is_masked"] or few[each]["is_scaled"] for each in self.latents)  # fmt: skip
        self.has_proper_prior = not is_changed and not self._factors
        in_rows = [each for each, axis in self.row_sites.items() if axis == 0 and not few[each]["is_factor"]]
        self.predicted = in_rows[0] if len(in_rows) == len(self.row_sites) == 1 else None
        self.is_masked = any(few[each]["is_masked"] for each in self.row_sites)
        names = ", ".join(f"'{each}'" for each in self.row_sites)
        several = f"several sites are observed in each row ({names}), so that a row is more than one observation"
        self.row_problem = several if len(self.row_sites) > 1 else ""
        for each in self.row_sites:
            if few[each]["is_masked"]:
                self.row_problem = f"a mask takes rows of '{each}' out of the likelihood, and they are not observations; leave these rows out of the data"
            elif few[each]["is_scaled"]:
                self.row_problem = f"`handlers.scale` weights the rows of '{each}', and a weighted row is not one observation to leave out"

    def _read_parameters(self, fields: Mapping[str, object]) -> tuple[str, ...] | None:
        """Return the arguments for which the function receives fields; None if it receives all fields as one mapping."""
        function = inspect.unwrap(self._function)
        while isinstance(function, Messenger) and function.fn is not None:
            # A handler used as a decorator.
            function = inspect.unwrap(function.fn)
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            raise ConfigError(
                f"model {self._name}: its arguments have no names: {inspect.signature(function)}",
                "give the decorator that wraps it `functools.wraps`; or define a function with the names of the fields, "
                "such as `def model(x, y): return wrapped(x, y)`",
            )
        needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        valid = {*fields, *self._constants}
        if len(needed) == 1 and needed[0] not in valid:
            return None
        for each in needed:
            if each not in valid:
                remedy = f"{suggest(each, valid)}; a table has no fields but those of `data.fields`, where it is given"
                raise ConfigError(f"model {self._name}: its argument '{each}' is not a field of the data", remedy)
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return tuple(sorted(valid))
        return tuple(p.name for p in parameters if p.name in valid)

    def _trace(
        self, rows: Arrays, latents: Arrays, key: PRNGKeyArray | None = None, dtype: str | None = None
    ) -> dict[str, Site]:
        """Run the model with some latents given and others drawn, and return the sites that are random variables."""
        # The key matters only where latents are not given: when drawing from the prior, or finding shapes.
        seeded = handlers.seed(self._function, jax.random.key(0) if key is None else key)
        drawn = handlers.substitute(seeded, substitute_fn=lambda site: _draw(site, dtype or self._dtype, latents))
        given = handlers.trace(handlers.substitute(drawn, data=dict(latents)))
        args, kwargs = self._given(rows)
        # Placeholder rows may be invalid values for a distribution.
        with validation_enabled(False):
            found = given.get_trace(*args, **kwargs)
        for name, site in found.items():
            if site["type"] == "param":
                raise ConfigError(f"model {self._name}: '{name}' is a param", "draw it from a prior: numpyro.sample")
            if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
                raise ConfigError(f"model {self._name}: the plate '{name}' takes a subsample", "leave subsample_size out: all rows count")  # fmt: skip
        return {name: site for name, site in found.items() if site["type"] in ("sample", "deterministic")}

    def _shapes_of(self, rows: Callable[[int], Arrays], count: int) -> dict[str, dict[str, Any]]:
        """Return `_shapes` of that many rows.

        Raises:
            ConfigError: the model takes as many rows as one of its plates has entries, and no other number.
        """
        with handlers.trace() as begun:
            try:
                return self._shapes(rows(count))
            except (ValueError, TypeError) as error:
                failed = error
        sizes = {name: site["args"][0] for name, site in begun.items() if site["type"] == "plate"}
        for name, size in sizes.items():
            if size != count and self._takes(rows(size)):
                raise ConfigError(
                    f"model {self._name}: the plate '{name}' has {size} entries, whatever the number of rows",
                    f"take the number of rows from a field, such as `numpyro.plate('{name}', len(y))`, because rows are divided "
                    "among tiles and devices; or take all data as one row:\n    model:\n      whole: true",
                ) from failed
        raise failed

    def _takes(self, rows: Arrays) -> bool:
        try:
            self._shapes(rows)
        except (ValueError, TypeError):
            return False
        return True

    def _shapes(self, rows: Arrays) -> dict[str, dict[str, Any]]:
        """Return, for each site, whether it is a latent, and the shape of its value or of its log density."""
        about: dict[str, dict[str, Any]] = {}

        def run(rows: Arrays) -> dict[str, Array]:
            out = {}
            for name, site in self._trace(rows, {}).items():
                if site["type"] == "deterministic":
                    continue
                support = getattr(site["fn"], "support", None)
                about[name] = {
                    "is_latent": not site["is_observed"],
                    "is_improper": any(isinstance(each, ImproperUniform) for each in _layers(site["fn"])),
                    "is_masked": any(isinstance(each, MaskedDistribution) for each in _layers(site["fn"])),
                    "is_scaled": site["scale"] is not None and not is_identically_one(site["scale"]),
                    "is_factor": isinstance(site["fn"], Unit),
                    "is_discrete": bool(getattr(support, "is_discrete", False)),
                    "fault": None if site["is_observed"] else _fault_of_map(site["fn"]),
                }
                out[name] = _log_prob(site) if site["is_observed"] else site["value"]
            return out

        shapes = jax.eval_shape(run, rows)
        return {name: {**each, "shape": shapes[name].shape} for name, each in about.items()}

    def _check_latent(self, name: str, site: Mapping[str, Any], more: Mapping[str, Any] | None) -> None:
        if site["is_discrete"]:
            raise ConfigError(f"model {self._name}: the latent '{name}' is discrete", "sum it out: kernels need gradients")  # fmt: skip
        if site["fault"] is not None:
            problem, remedy = site["fault"]
            raise ConfigError(f"model {self._name}: the latent '{name}' {problem}", remedy)
        if more is None or more["shape"] != site["shape"]:
            raise ConfigError(
                f"model {self._name}: the latent '{name}' has an entry for each row",
                "latents are shared by all rows; take all data as one row, which are then not spread over devices:\n"
                "    model:\n      whole: true",
            )

    # -- functions of arrays -----------------------------------------------------------------------------------------------

    def draw(self, key: PRNGKeyArray, dtype: str | None = None) -> dict[str, Array]:
        """Return a draw of the latents from the prior; for an improper one, a point near 0 in unconstrained space."""
        dtype = dtype or self._dtype

        def draw(rows: Arrays, key: PRNGKeyArray) -> dict[str, Array]:
            sites = self._trace(rows, {}, key, dtype)
            return {name: sites[name]["value"] for name in self.latents}

        return _evaluate(draw, self._some_rows(dtype), key)

    def log_prior(self, latents: Arrays) -> Float[Array, ""]:
        """Return the log density of the latents, and of factors that have no row axis."""

        def total(rows: Arrays, latents: Arrays) -> Array:
            sites = self._trace(rows, latents)
            return sum((_log_prob(sites[name]).sum() for name in (*self.latents, *self._factors)), start=jnp.zeros(()))

        return _evaluate(total, self._some_rows(_dtype(latents)), dict(latents))

    def constrain(self, z: Arrays) -> dict[str, Array]:
        """Return latents from unconstrained values."""
        function = handlers.seed(self._function, jax.random.key(0))

        def constrain(rows: Arrays, z: dict[str, Array]) -> dict[str, Array]:
            with validation_enabled(False):
                found = constrain_fn(function, *self._given(rows), z)
            return {name: found[name] for name in self.latents}

        return _evaluate(constrain, self._some_rows(_dtype(z)), dict(z))

    def _some_rows(self, dtype: str | jnp.dtype) -> Arrays:
        """Return placeholder rows in the dtype of the latents with which they are used."""
        return {k: v.astype(dtype) if jnp.issubdtype(v.dtype, jnp.floating) else v for k, v in self._some.items()}

    def _given(self, rows: Arrays) -> tuple[tuple[Arrays, ...], dict[str, Any]]:
        """Return the arguments of the function, by place and by name."""
        if self._parameters is None:
            return (rows,), {}
        there = {**self._constants, **rows}
        return (), {name: there[name] for name in self._parameters}

    def unconstrain(self, latents: Arrays) -> dict[str, Array]:
        """Return unconstrained values from latents."""

        def unconstrain(rows: Arrays, latents: Arrays) -> dict[str, Array]:
            sites = self._trace(rows, latents)
            return {name: biject_to(sites[name]["fn"].support).inv(latents[name]) for name in self.latents}

        return _evaluate(unconstrain, self._some_rows(_dtype(latents)), dict(latents))

    def log_jacobian(self, z: Arrays) -> Float[Array, ""]:
        """Return the log determinant of the Jacobian of `constrain`."""

        def total(rows: Arrays, z: Arrays, latents: Arrays) -> Array:
            sites = self._trace(rows, latents)
            maps = {name: biject_to(sites[name]["fn"].support) for name in self.latents}
            terms = (maps[name].log_abs_det_jacobian(z[name], latents[name]).sum() for name in self.latents)
            return sum(terms, start=jnp.zeros(()))

        latents = self.constrain(z)
        return _evaluate(total, self._some_rows(_dtype(latents)), dict(z), latents)

    def log_likelihood(self, latents: Arrays, rows: Arrays) -> Float[Array, "..."]:
        """Return the log likelihood of each row, or of all data, (), where they are one row."""
        sites = self._trace(rows, latents)
        first, *others = (_by_row(_within_support(sites[name]), axis) for name, axis in self.row_sites.items())
        return sum(others, start=first)

    def deterministics(self, latents: Arrays, rows: Arrays) -> dict[str, Array]:
        """Return the values of NumPyro's deterministic sites."""
        sites = self._trace(rows, latents).items()
        return {name: jnp.asarray(site["value"]) for name, site in sites if site["type"] == "deterministic"}

    def observed(self, latents: Arrays, rows: Arrays) -> Site:
        """Return the site `predicted`."""
        return self._trace(rows, latents)[str(self.predicted)]

    def outcome(self, rows: Arrays) -> Array:
        """Return the values of the site `predicted`."""
        latents = {name: jnp.ones(v.shape, v.dtype) for name, v in self.some_latents().items()}
        return _evaluate(lambda rows: jnp.asarray(self.observed(latents, rows)["value"]), dict(rows))

    def some_latents(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes of the latents."""
        found: dict[str, jax.ShapeDtypeStruct] = jax.eval_shape(self.draw, jax.random.key(0))
        return found

    def terms_of_rows(self, num_rows: int | None) -> Iterator[tuple[str, str]]:
        """Yield latents and factors whose log density depends on the rows, each with `VALUES` or `NUMBER`.

        Args:
            num_rows: number of rows of the data, which a term may depend on; None where all data are one row, whose
                shapes are those of the data.
        """
        latents, names = self.draw(jax.random.key(1)), (*self.latents, *self._factors)

        def terms(rows: Arrays) -> list[Array]:
            sites = self._trace(rows, latents)
            return [_log_prob(sites[name]) for name in names]

        def evaluate(count: int | None) -> list[Array | None]:
            """Return each term for that many rows without values; None where it needs values."""
            rows = {
                k: jax.ShapeDtypeStruct(v.shape if count is None else (count, *v.shape[1:]), v.dtype)
                for k, v in self._some.items()
            }
            traced = jax.make_jaxpr(terms)(rows)
            found: list[Array | None] = []
            for place in range(len(names)):
                alone, is_used = partial_eval.dce_jaxpr(traced.jaxpr, [i == place for i in range(len(names))])
                found.append(None if any(is_used) else jax.core.eval_jaxpr(alone, traced.consts)[0])
            return found

        few, *others = (evaluate(count) for count in ((None,) if num_rows is None else (MANY, MORE, num_rows)))
        for name, value, *more in zip(names, few, *others, strict=True):
            if value is None:
                yield name, VALUES
            elif not all(jnp.array_equal(value, other, equal_nan=True) for other in more):
                yield name, NUMBER


def _layers(distribution: Any) -> list[Any]:
    """Return a distribution and those inside it that it expands, masks or transforms."""
    found = [distribution]
    while hasattr(found[-1], "base_dist"):
        found.append(found[-1].base_dist)
    return found


def _fault_of_map(distribution: Any) -> tuple[str, str] | None:
    """Return why NumPyro's map to unconstrained space is not that of the support of a latent, and the remedy; None if it is."""
    for each in _layers(distribution):
        name = type(each).__name__
        if isinstance(each, _MIXED):
            return (
                f"has a distribution, {name}, in which single values have a probability of their own",
                "give the latent the continuous part as its prior, and sum over the two cases in the likelihood",
            )
        support = getattr(getattr(each, "base_dist", None), "support", None)
        for part in each.transforms if type(each) is TransformedDistribution else ():
            if _is_real(part.domain) != _is_real(support):
                return (
                    f"is transformed by {type(part).__name__}, whose domain is {part.domain} where the values to transform"
                    f" are {support}",
                    "give a latent the distribution before the transform, and transform it in the model:"
                    " `numpyro.deterministic(name, transform(latent))`",
                )
            support = part.codomain
    try:
        biject_to(distribution.support)
    except NotImplementedError:
        return (
            f"has a distribution, {type(distribution).__name__}, whose support NumPyro does not map to unconstrained space",
            "for a direction, draw `z` from dist.Normal(concentration, 1).to_event(1) and use `z / jnp.linalg.norm(z)`,"
            " which has the distribution dist.ProjectedNormal(concentration)",
        )
    return None


def _is_real(support: Any) -> bool:
    """Return whether a support is the real numbers, whatever the number of axes."""
    return _base(support) in (None, constraints.real)


def _base(support: Any) -> Any:
    """Return the support of single numbers, without axes."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support


def _evaluate[Result](function: Callable[..., Result], *given: object) -> Result:
    """Return the arrays that a function returns; it sees no values, as in a compiled program.

    NumPyro's handlers check values that they see, and placeholder rows may be invalid.
    """
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*given)
    values = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *jax.tree.leaves(given))
    result: Result = jax.tree.unflatten(jax.tree.structure(shapes), values)
    return result


def _dtype(latents: Arrays) -> jnp.dtype:
    """Return the dtype of latents, all of which are continuous."""
    return jnp.result_type(*latents.values())


def _draw(site: Site, dtype: str, latents: Arrays) -> Array | None:
    """Return a draw of a continuous latent in the dtype of the run; None for all other sites, and where the latent is given.

    An improper latent is standard normal in unconstrained space.
    """
    if site["type"] != "sample" or site["value"] is not None or site["name"] in latents:
        return None
    if any(isinstance(each, ImproperUniform) for each in _layers(site["fn"])):
        to_support = biject_to(site["fn"].support)
        shape = to_support.inverse_shape(site["fn"].shape(site["kwargs"]["sample_shape"]))
        value: Array = to_support(jax.random.normal(site["kwargs"]["rng_key"], shape))
    else:
        value = site["fn"](*site["args"], **site["kwargs"])
    return value.astype(dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _log_prob(site: Site) -> Array:
    """Return the log density of a site, over its batch, as NumPyro counts it."""
    # NumPyro checks no values while a call is traced, and draws and placeholder rows are not the user's data.
    with validation_enabled(False):
        value = site["fn"].log_prob(site["value"], site["intermediates"]) if site["intermediates"] else site["fn"].log_prob(site["value"])  # fmt: skip
    scale = site["scale"]
    return value if scale is None or is_identically_one(scale) else scale * value


def _within_support(site: Site) -> Array:
    """Return the log density of an observed site, minus infinity outside its support, where NumPyro's continues.

    Values that a mask takes out, and supports with a tolerance, such as a simplex, are not checked.
    """
    value, support = _log_prob(site), site["fn"].support
    is_masked = any(isinstance(each, MaskedDistribution) for each in _layers(site["fn"]))
    if is_masked or _base(support) in (None, constraints.real) or _base(support).event_dim:
        return value
    return jnp.where(support(site["value"]), value, -jnp.inf)


def _axis(few: Sequence[int], more: Sequence[int]) -> int | None:
    """Return the axis with as many entries as rows; None if there is not exactly one.

    >>> _axis((5, 2), (5, 3)), _axis((), ()), _axis((2, 2), (3, 3))
    (1, None, None)
    """
    if len(few) != len(more):
        return None
    changed = [i for i, pair in enumerate(zip(few, more, strict=True)) if pair[0] != pair[1]]
    return changed[0] if len(changed) == 1 and (few[changed[0]], more[changed[0]]) == (MANY, MORE) else None


def _by_row(values: Array, axis: int | None) -> Array:
    """Sum a log density over all axes but the row axis."""
    if axis is None:
        return values.sum()
    return jnp.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).sum(1)
