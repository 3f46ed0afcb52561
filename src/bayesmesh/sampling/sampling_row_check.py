"""Check at three rows that a likelihood gives each row's value from that row alone, and its fast path the same sum.

Shapes cannot tell: a model that takes a mean over the rows it is given has another posterior for every tile and device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.config.user_code import explaining, place_of
from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models._model_latents import align_local
from bayesmesh.models.base import Model
from bayesmesh.sampling.sampling_density import device_dtype

NUM_ROWS = 3

_RELATIVE = {"float32": 1e-3, "float64": 1e-8}
"""Difference that rounding can explain, relative to the largest value or slope."""


_QUICK = {"xla_backend_optimization_level": 0}
"""The program runs once, on three rows: compiling it takes nearly all the time."""


class _Values(NamedTuple):
    """Log likelihoods of rows, (row,), of all rows but the first in reverse, of each row alone, and of two ways to sum the outer two."""

    whole: jax.Array
    part: jax.Array
    alone: jax.Array
    plain: tuple[jax.Array, Mapping[str, jax.Array]]
    fast: tuple[jax.Array, Mapping[str, jax.Array]]


def check_rows(model_class: type[Model], options: Any, spec: DataSpec, rows: Mapping[str, np.ndarray]) -> None:
    """Compare values of rows among others with those among fewer, and the fast path of the sum with the plain one.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.
        rows: field -> (3, ...), rows of the data that lie far apart.

    Raises:
        ConfigError: the value of a row depends on the other rows, or `log_likelihood_and_gradient` differs from
            `log_likelihood`; the message names file, line and method.
    """
    few = dataclasses.replace(spec, num_rows=NUM_ROWS)
    model = model_class(options, few)
    in_dtype = {k: np.asarray(v, device_dtype(v.dtype.name, np.dtype(spec.dtype))) for k, v in rows.items()}
    with explaining(method=model.log_likelihood):
        evaluate = jax.jit(lambda data: _evaluate(model, few, data), compiler_options=_QUICK)
        found = jax.device_get(evaluate(in_dtype))
    scale = _RELATIVE[np.dtype(spec.dtype).name]
    # A statistic of all rows is that of the pair where one of the two decides it, and of a single row it may not be finite.
    for number, fewer in (("two", found.part[::-1]), ("one", found.alone)):
        among = found.whole[-len(fewer) :]
        if _agree(among, fewer, scale):
            continue
        at = int(np.nanargmax(np.abs(np.asarray(among, np.float64) - np.asarray(fewer, np.float64))))
        raise ConfigError(
            f"{place_of(model.log_likelihood)}: the value of a row changes with the rows beside it:"
            f" {among[at]:.6g} among three rows, {fewer[at]:.6g} among {number}",
            "compute each row's value from that row and the latents alone: no mean, sum, sort or count over the axis of"
            f" rows; numbers of the whole dataset belong into the data{_whole(model)}",
        )
    for name, plain, fast in (
        ("its value", found.plain[0], found.fast[0]),
        *((f"its gradient by '{k}'", g, found.fast[1][k]) for k, g in found.plain[1].items()),
    ):
        if not _agree(plain, fast, scale):
            raise ConfigError(
                f"{place_of(model.log_likelihood_and_gradient)}: {name} is not that of the sum of log_likelihood over"
                " the rows where `is_row` is true",
                "correct it, or leave the method out: Model.log_likelihood_and_gradient then differentiates log_likelihood",
            )


def _whole(model: Model) -> str:
    """Return the other remedy of a model that can take all rows as one."""
    has_option = getattr(model.options, "whole", None) is False
    return "; or take all data as one row:\n    model:\n      whole: true" if has_option else ""


def _evaluate(model: Model, spec: DataSpec, rows: Mapping[str, jax.Array]) -> _Values:
    """Evaluate a model at a point of moderate size in unconstrained space, however vague its prior is."""
    prior = model.prior(spec.with_dtype("float64"))
    bijector = prior.experimental_default_event_space_bijector()
    like = jax.eval_shape(lambda: bijector.inverse(prior.sample(seed=jax.random.key(0))))
    # Constants: a generator would be most of the program.
    random = np.random.default_rng(1)
    point = jax.tree.map(lambda x: jnp.asarray(0.3 * random.standard_normal(x.shape), x.dtype), like)
    latents = {k: v.astype(spec.dtype) for k, v in bijector.forward(point).items()}

    def of(order: list[int]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        at = jnp.asarray(order)
        entries = jnp.asarray(spec.entries_of(np.asarray(order)))
        return align_local(model, latents, entries), {k: v[at] for k, v in rows.items()}

    every, is_row = of([0, 1, 2]), jnp.asarray([True, False, True])

    def summed(draw: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(jnp.where(is_row, model.log_likelihood(draw, every[1]), 0))

    plain = jax.value_and_grad(summed)(every[0])
    has_own = type(model).log_likelihood_and_gradient is not Model.log_likelihood_and_gradient
    value, gradient = model.log_likelihood_and_gradient(*every, is_row) if has_own else plain
    axes = model.local_latents
    local = {k: jnp.moveaxis(every[0][k], axis, 0)[:, None] for k, axis in axes.items()}

    def alone(local: dict[str, jax.Array], row: dict[str, jax.Array]) -> jax.Array:
        own = {k: jnp.moveaxis(v, 0, axes[k]) for k, v in local.items()}
        return model.log_likelihood({**every[0], **own}, row).reshape(())

    return _Values(
        model.log_likelihood(*every),
        model.log_likelihood(*of([2, 1])),
        jax.vmap(alone)(local, {k: v[:, None] for k, v in every[1].items()}),
        plain,
        (value, {k: gradient[k] for k in plain[1]}),
    )


def _agree(one: Any, other: Any, relative: float) -> bool:
    """Return whether values differ by rounding; what is not finite is the business of starts and gates."""
    one, other = (np.asarray(x, np.float64) for x in (one, other))
    known = np.isfinite(one) & np.isfinite(other)
    one, other = one[known], other[known]
    size = max(1.0, np.abs(one).max(initial=0.0))
    return bool((np.abs(one - other) <= relative * size).all())
