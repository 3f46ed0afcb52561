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
from jaxtyping import Array, Bool, Key

from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position, Target
from bayesmesh.kernels.hamiltonian.random_numbers import Stream, normal


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
        del like
        return ()

    def update_estimate(self, estimate: tuple[()], position: Position, gradient: Position) -> tuple[()]:
        """Return the empty estimate."""
        del position, gradient
        return estimate

    def estimate(self, estimate: tuple[()]) -> Data:
        """Raise, because a fixed metric learns nothing."""
        raise NotImplementedError(f"{type(self).__name__} is not adaptive")

    def estimate_axes(self) -> tuple[()]:
        """Return empty axes."""
        return ()


def check_estimate(metric: Metric[Any, Any], learnt: Any, present: Any) -> None:
    """Refuse an estimated metric whose arrays differ in structure, shape or dtype from those of the metric that it replaces.

    Raises:
        ConfigError: they differ; the message names the file of the metric.
    """
    if not _are_alike(learnt, present):
        raise ConfigError(
            f"{inspect.getfile(type(metric))}: estimate() returns {_describe(learnt)}, and the metric at the start is"
            f" {_describe(present)}",
            "return from estimate() the arrays that init() and start() return: as many, with their shapes and dtypes",
        )


def check_update[Estimate](metric: Metric[Any, Estimate], after: Estimate, before: Estimate) -> Estimate:
    """Return an updated estimate; refuse one whose arrays differ in structure, shape or dtype from those before.

    Raises:
        ConfigError: they differ; the message names the file of the metric.
    """
    if not _are_alike(after, before):
        raise ConfigError(
            f"{inspect.getfile(type(metric))}: update_estimate() returns {_describe(after)}; it is given {_describe(before)}",
            "return the arrays that init_estimate() returns: as many, with their shapes and dtypes",
        )
    return after


def check_maps(metric: Metric[Any, Any], data: Any, position: Position) -> None:
    """Refuse a metric whose maps change the structure, shape or dtype of their argument.

    Args:
        metric: the kind of metric.
        data: its arrays.
        position: positions (chain, ...); only shapes and dtypes matter.

    Raises:
        ConfigError: a map does; the message names the file of the metric and the method.
    """
    for name in ("move", "whiten_gradient", "whiten_position"):
        returned = jax.eval_shape(getattr(metric, name), data, position)
        if not _are_alike(returned, position):
            raise ConfigError(
                f"{inspect.getfile(type(metric))}: {name}() returns {_describe(returned)}; it is given {_describe(position)}",
                "return a Position with the shapes and dtypes of the one that is given",
            )


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether two trees have the same structure, and arrays of the same shapes and dtypes."""
    (leaves, tree), (others, other_tree) = jax.tree.flatten(one), jax.tree.flatten(other)
    return str(tree) == str(other_tree) and [(x.shape, x.dtype) for x in leaves] == [(x.shape, x.dtype) for x in others]


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
