"""The contract of a metric.

With an inverse mass matrix A A^T, momentum is written as A^-T p with p standard normal. Kinetic energy is p.p / 2,
positions move along A p and the force on p is A^T times the gradient (Neal 2011, "MCMC using Hamiltonian dynamics",
section 5.4.1). Kernels work with p alone, so only the metric knows the form of A.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position, Target
from bayesmesh.kernels.hamiltonian.random_numbers import Stream, normal

FLOOR = 1e-7
"""Regularisation added to both scatters, in units in which a coordinate of draws and of gradients have equal variance.

It shrinks towards the identity in these units where points are few. More of it costs conditioning: at 1e-3, a target with
condition number 1e8 is left with 1e2."""


class Metric[Data, Estimate](ABC):
    """A linear map A of positions, and its estimation during warmup.

    Data is a pytree of arrays without a chain axis, because one metric serves all chains of a program. Estimate is a pytree
    with running statistics for the next metric. The metric declares the sharding of the arrays of both.

    Class attributes:
        is_adaptive: whether warmup changes it.

    Args:
        options: the kernel's; by default the options that all Hamiltonian kernels share.
    """

    is_adaptive: ClassVar[bool] = True

    def __init__(self, options: HamiltonianSettings | None = None) -> None:
        self.options = HamiltonianSettings() if options is None else options

    @abstractmethod
    def init(self, gradient: Position, mask: Position) -> Data:
        """Return the initial metric from the gradients (chain, ...) at the start of the chains."""

    def start(self, gradient: Position, target: Target) -> Data:
        """Return the initial metric of chains with these gradients (chain, ...); by default from `init`."""
        return self.init(gradient, target.mask)

    @abstractmethod
    def move(self, data: Data, momentum: Position) -> Position:
        """Return A p: the direction of positions (chain, ...) for momenta (chain, ...)."""

    @abstractmethod
    def whiten_gradient(self, data: Data, gradient: Position) -> Position:
        """Return A^T g for gradients (chain, ...)."""

    @abstractmethod
    def whiten_position(self, data: Data, position: Position) -> Position:
        """Return A^-1 q for positions, or differences of positions, (chain, ...)."""

    def draw_momentum(self, key: Key[Array, " chain"], like: Position, mask: Position) -> Position:
        """Draw p, standard normal where `mask` is not 0, for (chain,) keys."""
        return standard_normal(key, like, mask)

    @abstractmethod
    def init_estimate(self, like: Position) -> Estimate:
        """Return the empty estimate of a new window, for positions (chain, ...) like these."""

    @abstractmethod
    def update_estimate(self, estimate: Estimate, position: Position, gradient: Position) -> Estimate:
        """Add the current point of every chain, (chain, ...); a chain whose gradient is not finite must not count."""

    @abstractmethod
    def estimate(self, estimate: Estimate) -> Data:
        """Return the metric at the end of a window."""

    @abstractmethod
    def data_axes(self) -> Data:
        """Return the `Axes` of every array of the metric; one `Axes` may stand for all arrays of a tuple."""

    @abstractmethod
    def estimate_axes(self) -> Estimate:
        """Return the `Axes` of every array of the estimate."""


class FixedMetric[Data](Metric[Data, tuple[()]]):
    """A metric that warmup does not change."""

    is_adaptive = False

    def init_estimate(self, like: Position) -> tuple[()]:
        """Return an empty estimate."""
        return ()

    def update_estimate(self, estimate: tuple[()], position: Position, gradient: Position) -> tuple[()]:
        """Return the empty estimate."""
        return estimate

    def estimate(self, estimate: tuple[()]) -> Data:
        """Raise, because a fixed metric learns nothing."""
        raise NotImplementedError(f"{type(self).__name__} is not adaptive")

    def estimate_axes(self) -> tuple[()]:
        """Return empty axes."""
        return ()


def check_arrays(metric: Metric[Any, Any], method: str, returned: Any, expected: Any, remedy: str) -> None:
    """Raise unless a method of a metric returns arrays with the structure, shapes and dtypes of those that it should.

    Args:
        metric: the kind of metric.
        method: its name.
        returned: what it returned; only shapes and dtypes matter, here and in `expected`.
        expected: arrays like those that it should return.
        remedy: what to return.

    Raises:
        ConfigError: they differ; the message names the file of the metric.
    """
    (leaves, tree), (others, other_tree) = jax.tree.flatten(returned), jax.tree.flatten(expected)
    alike = str(tree) == str(other_tree)
    if not alike or [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in others]:
        raise ConfigError(
            f"{inspect.getfile(type(metric))}: {method}() returns {_describe(returned)} instead of {_describe(expected)}",
            remedy,
        )


def check_maps(metric: Metric[Any, Any], data: Any, position: Position) -> None:
    """Raise if a map of a metric changes the structure, shape or dtype of positions (chain, ...); see `check_arrays`."""
    for name in ("move", "whiten_gradient", "whiten_position"):
        returned = jax.eval_shape(getattr(metric, name), data, position)
        remedy = "return a Position with the shapes and dtypes of the one that is given"
        check_arrays(metric, name, returned, position, remedy)


def _describe(tree: Any) -> str:
    arrays = ", ".join(f"{x.dtype} of shape {x.shape}" for x in jax.tree.leaves(tree))
    return f"{arrays} as {type(tree).__name__}"


def standard_normal(key: Key[Array, " chain"], like: Position, mask: Position) -> Position:
    """Return standard normal numbers, like a position, for (chain,) keys; 0 where `mask` is 0.

    A value depends only on the index of its coordinate, so padding after the last entry changes nothing. The same keys give
    the same numbers again; fold them for a second momentum.
    """

    def draw(stream: Stream, part: jax.Array | None) -> jax.Array | None:
        return None if part is None else normal(key, stream, part.shape[1:], part.dtype)

    drawn = Position(draw(Stream.SHARED_MOMENTUM, like.shared), draw(Stream.LOCAL_MOMENTUM, like.local))
    return apply_mask(drawn, mask)


def apply_mask(position: Position, mask: Position) -> Position:
    """Return positions (chain, ...) with 0 where the mask is 0."""
    return Position(*(x if m is None or x is None else x * m[None] for x, m in zip(position, mask, strict=True)))


def count_finite(gradient: Position) -> Bool[Array, " chain"]:
    """Return which chains have a finite gradient, (chain,) bool."""
    finite = [jnp.isfinite(g).reshape(g.shape[0], -1).all(axis=1) for g in jax.tree.leaves(gradient)]
    return jnp.stack(finite).all(axis=0)


def fisher_root(draws: Float[Array, "d d"], gradients: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return R such that S = R R^T is the covariance with S `gradients` S = `draws`, which minimises the Fisher divergence.

    For a normal target with precision H the gradient at q is -H q, so that draws with scatter C have gradients with scatter
    H C H. The only positive definite S with S (H C H) S = C is the inverse of H, whatever C is. Few draws therefore determine
    it, and they need not be distributed as the target (Seyboldt, Carlson and Carpenter 2026, "Preconditioning Hamiltonian
    Monte Carlo by minimizing Fisher divergence", arXiv:2603.18845).

    Args:
        draws: scatter of draws, positive definite, float64.
        gradients: scatter of gradients.

    >>> draws, gradients = jnp.diag(jnp.array([8.0, 3.0])), jnp.diag(jnp.array([2.0, 3.0]))
    >>> root = fisher_root(draws, gradients)
    >>> (root @ root.T).round(6).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    factor = jnp.linalg.cholesky(gradients)
    values, vectors = jnp.linalg.eigh(factor.T @ draws @ factor)
    # S = L^-T (L^T C L)^(1/2) L^-1, where L L^T is the scatter of gradients.
    stretched = vectors * jnp.maximum(values, 0)[None] ** 0.25
    return jax.scipy.linalg.solve_triangular(factor, stretched, lower=True, trans=1)
