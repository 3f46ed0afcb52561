"""The contract of a transition kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax

from bayesmesh.config.settings import Settings

__all__ = ["Density", "Kernel", "LogDensityFn", "Position"]

Position = dict[str, jax.Array]
"""Latent name -> array (chain, ...) in unconstrained space; the axis that follows the rows comes right after `chain`."""


class Density(NamedTuple):
    """Log density of a batch of positions and its gradient.

    Attributes:
        log_prior: (chain,) float64, nats, with the log Jacobian of the map from unconstrained space.
        log_likelihood: (chain,) float64, nats.
        gradient: of their sum with respect to the position, same shapes and dtypes.
    """

    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: Position


LogDensityFn = Callable[[Position], Density]


class Kernel(ABC):
    """A Markov kernel over a batch of chains; pure, and without a loop over draws.

    Every state is a pytree of arrays and is, as it stands, the checkpoint: a kernel recomputes nothing on resume. It has
    at least the fields ``position``, ``log_prior``, ``log_likelihood``, ``gradient`` and ``num_steps``.

    Args:
        options: the kernel's own Options.
        num_warmup: warmup iterations, fixed for the life of the kernel.
    """

    pretty_name: ClassVar[str]
    reference: ClassVar[str]
    min_chains: ClassVar[int] = 1

    def __init__(self, options: Settings, num_warmup: int) -> None:
        self.options: Any = options
        self.num_warmup = num_warmup

    @property
    def num_adaptive(self) -> int:
        """Warmup iterations that may change the tuning: the first so many; all of them, where a kernel says nothing."""
        return self.num_warmup

    @abstractmethod
    def expected_gradients(self) -> float:
        """Gradients per draw to plan a segment with, before anything was measured."""

    @abstractmethod
    def init(self, position: Position, log_density_fn: LogDensityFn) -> Any:
        """Return the state at a position; costs one gradient."""

    @abstractmethod
    def step(self, key: jax.Array, state: Any, log_density_fn: LogDensityFn, tuning: Any) -> tuple[Any, Any]:
        """Return the next state and what diagnostics need of the step.

        Args:
            key: (chain,) typed keys, one per chain.
            state: from `init` or `step`.
            log_density_fn: the target.
            tuning: from `warmup_finish`.

        Returns:
            The state, and an Info whose fields become `sample_stats`: (chain,) fields ``acceptance_rate``,
            ``accepted``, ``diverging``, ``energy``, ``lp`` and ``log_likelihood``, and the scalars ``n_steps``
            (gradients of the step) and ``step_size``.
        """

    @abstractmethod
    def warmup_init(self, state: Any, active: Position) -> Any:
        """Return the state of warmup.

        Args:
            state: from `init`.
            active: position-shaped without the chain axis; 1 for a coordinate that lives, 0 for padding, which a
                kernel must never move.
        """

    @abstractmethod
    def warmup_step(self, key: jax.Array, state: Any, log_density_fn: LogDensityFn) -> tuple[Any, Any]:
        """Like `step`, on a state that carries the adaptation."""

    @abstractmethod
    def warmup_finish(self, state: Any) -> tuple[Any, Any]:
        """Return the kernel's state and the tuning that stays fixed from here on."""
