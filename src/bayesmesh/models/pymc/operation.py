"""A model of the pipeline as an operation in a PyMC model: its log likelihood, with its gradient.

Two forms, as in PyMC's example gallery ("How to wrap a JAX function for use in PyMC"). Form ``two`` has one operation for
the value and another for its gradient, as `pytensor.wrap_jax` makes them; it uses PyTensor's own operation. Form ``one``
has a single operation for both, so that a sampler that needs both pays for one pass. Either way the gradient comes from
the model's fast path, even where PyMC compiles to JAX and where JAX differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.link.jax.ops import JAXOp
from pytensor.tensor.type import TensorType

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Model

Values = tuple[jax.Array, ...]


class ValueAndGradient(JAXOp):
    """The log likelihood and its gradient with respect to every latent, from one pass."""

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_gradients: Sequence[Variable]
    ) -> list[Variable]:
        """Return the gradient that the operation has already computed, times the derivative with respect to the value."""
        by_value, *by_gradient = output_gradients
        if any(not isinstance(g.type, DisconnectedType) for g in by_gradient):
            raise NotImplementedError("second derivatives; use form='two', whose gradient is an operation of its own")
        return [pt.mul(by_value, gradient) for gradient in outputs[1:]]


def log_likelihood_operation(
    model: Model, rows: Mapping[str, np.ndarray], form: Literal["one", "two"] = "one"
) -> Callable[..., Variable]:
    """Return a function of PyTensor variables that gives the log likelihood, summed over all rows.

    The prior stays PyMC's: declare the latents there and add a potential::

        log_likelihood = log_likelihood_operation(model, rows)
        with pymc.Model():
            signal = pymc.Normal("signal", 0, 1)
            ...
            pymc.Potential("log_likelihood", log_likelihood(signal=signal, ...))

    Args:
        model: any model of the pipeline, bound to its data in float64.
        rows: field -> (row, ...), kept in the operation.
        form: ``one`` operation for value and gradient, or ``two``.

    Returns:
        A function of keyword arguments, one for each latent, in constrained space and of the prior's shape.

    Raises:
        ConfigError: from the function: a latent is missing, or a name is not a latent of the model.
    """
    shapes = jax.eval_shape(lambda: model.prior(model.spec).sample(seed=jax.random.key(0)))
    names = sorted(shapes)
    types = [TensorType(str(shapes[name].dtype), shape=shapes[name].shape) for name in names]
    both = _value_and_gradient(model, {k: jnp.asarray(v) for k, v in rows.items()}, names)
    value_type = TensorType("float64", shape=())
    if form == "one":
        operation: JAXOp = ValueAndGradient(types, [value_type, *types], both, name="log_likelihood_and_gradient")
    else:
        operation = JAXOp(types, [value_type], lambda *values: both(*values)[:1], name="log_likelihood")

    def apply(**latents: Variable) -> Variable:
        for name in [*latents, *names]:
            if name not in latents or name not in shapes:
                what = "missing" if name in shapes else "not a latent of the model"
                raise ConfigError(f"log likelihood of {type(model).__name__}: '{name}' is {what}", suggest(name, names))
        return operation.make_node(*(latents[name] for name in names)).outputs[0]

    return apply


def _value_and_gradient(model: Model, rows: Mapping[str, jax.Array], names: Sequence[str]) -> Callable[..., Values]:
    """Return a function of the latents' values to (value, gradient by each), differentiable in the value."""
    is_row = jnp.ones(len(next(iter(rows.values()))), bool)

    @jax.custom_vjp
    def both(*values: jax.Array) -> Values:
        value, gradient = model.log_likelihood_and_gradient(dict(zip(names, values, strict=True)), rows, is_row)
        return (value, *(gradient[name] for name in names))

    def forward(*values: jax.Array) -> tuple[Values, Values]:
        found = both(*values)
        return found, found[1:]

    def backward(gradient: Values, weights: Values) -> Values:
        # The weights of the gradients themselves would be second derivatives, which `pullback` refuses.
        return tuple((weights[0] * g).astype(g.dtype) for g in gradient)

    both.defvjp(forward, backward)
    return both
