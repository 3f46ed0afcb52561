"""The contract of a transition kernel: positions, the target it leaves invariant, and how its arrays lie on a mesh."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np

from bayesmesh.config.settings import Settings, numeric_options, replace_options

__all__ = [
    "CHAIN",
    "COORDINATES",
    "POSITION",
    "SCALAR",
    "Axes",
    "Density",
    "DensityParts",
    "Kernel",
    "Position",
    "Statistic",
    "Target",
    "first_chains",
]


class Position(NamedTuple):
    """What kernels move: at most two arrays in unconstrained space, whatever the number of latents.

    Attributes:
        shared: (chain, S) coordinates that all rows share; None where there are none.
        local: (chain, entry, k) coordinates with one entry per user, group or row, padded behind the last; None where
            there are none.

    Without the chain axis the same pair holds one number a coordinate: a scale, a variance, a mask.
    """

    shared: jax.Array | None
    local: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Axes:
    """How an array lies over the mesh: for each of its axes ``chain``, ``entry`` or None; the rest is replicated.

    >>> Axes("chain", None).names
    ('chain', None)
    """

    names: tuple[str | None, ...]

    def __init__(self, *names: str | None) -> None:
        object.__setattr__(self, "names", names)


SCALAR = Axes()
CHAIN = Axes("chain")
POSITION: Any = Position(Axes("chain", None), Axes("chain", "entry", None))
"""Axes of a `Position` with its chain axis."""
COORDINATES: Any = Position(Axes(None), Axes("entry", None))
"""Axes of a `Position` without it."""


class Density(NamedTuple):
    """Log density of a batch of positions and its gradient.

    Attributes:
        log_prior: (chain,) float64, nats, with the log Jacobian of the map from unconstrained space.
        log_likelihood: (chain,) float64, nats.
        gradient: of their sum, like the position.
    """

    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: Position


class DensityParts(NamedTuple):
    """Log prior and log likelihood of a batch of positions, (chain,) float64, nats, and the gradient of each."""

    log_prior: jax.Array
    log_likelihood: jax.Array
    prior_gradient: Position
    likelihood_gradient: Position


class Target(Protocol):
    """A log density, as kernels see it.

    Attributes:
        mask: 1 for a coordinate that lives and 0 for padding, without the chain axis; a part without padding is None.
            A kernel never moves padding.
    """

    @property
    def mask(self) -> Position: ...

    def log_density(self, position: Position) -> Density:
        """Return log prior, log likelihood and the gradient of their sum."""
        ...

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return the same with the gradients of prior and likelihood apart; costs a little more."""
        ...


class Statistic(NamedTuple):
    """One field of `sample_stats`: its unit, ``1`` for a pure number, and one sentence about it."""

    unit: str
    description: str


class Kernel[State, Tuning, Info, Adaptation](ABC):
    """A Markov kernel over a batch of chains: pure, vectorised over the chain axis, and without a loop over draws.

    A state is a pytree of arrays and is, as it stands, the checkpoint: nothing is recomputed on resume. It has at least
    the fields ``position``, ``log_prior`` and ``log_likelihood``. What a kernel learns during warmup is its adaptation;
    what it has learnt, as `step` reads it, is its tuning. Statistics over chains pool the chains of one call and no
    others, so that a further axis of chain sets can be mapped over a kernel.

    Class attributes:
        pretty_name, reference: for tables.
        min_chains: fewest chains that run together.
        chain_multiple: the number of chains must be a multiple of it.
        is_adjusted: whether an accept step makes the target exactly invariant.
        interacts: whether chains meet after warmup too; then they are no independent replicates of each other.
        statistics: field of Info -> unit and meaning; these fields become `sample_stats`. ``lp`` and ``log_likelihood``
            (nats), and ``n_steps``, the gradients of a step, are always among them.

    Args:
        options: the kernel's own Options.
        num_warmup: warmup iterations.
    """

    pretty_name: ClassVar[str]
    reference: ClassVar[str]
    min_chains: ClassVar[int] = 1
    chain_multiple: ClassVar[int] = 1
    is_adjusted: ClassVar[bool] = True
    interacts: ClassVar[bool] = False
    statistics: ClassVar[Mapping[str, Statistic]]

    def __init__(self, options: Settings, num_warmup: int | jax.Array) -> None:
        self.options: Any = options
        self.num_warmup = num_warmup

    def with_arguments(
        self, options: Mapping[str, Any], num_warmup: jax.Array
    ) -> Kernel[State, Tuning, Info, Adaptation]:
        """Return this kernel with numeric options, and the length of warmup, that are arguments of a program."""
        made = copy.copy(self)
        made.options, made.num_warmup = replace_options(self.options, options, np.float64), num_warmup
        return made

    @property
    def numeric_options(self) -> dict[str, float | int]:
        """Options that are arguments of a program and not compiled in."""
        return numeric_options(self.options)

    @property
    def num_adaptive(self) -> int | jax.Array:
        """Warmup iterations that may change the tuning: the first so many; all, where a kernel does not say."""
        return self.num_warmup

    def num_chains_reported(self, num_chains: int) -> int:
        """Return how many chains are draws of the target: the first so many of `num_chains`."""
        return num_chains

    @abstractmethod
    def expected_gradients(self) -> float:
        """Return the gradients per draw to plan a segment with, before anything was measured."""

    @abstractmethod
    def init(self, key: jax.Array, position: Position, target: Target) -> State:
        """Return the state at a position.

        Args:
            key: (chain,) typed keys, one per chain.
            position: where the chains start.
            target: the log density.
        """

    @abstractmethod
    def step(self, key: jax.Array, state: State, target: Target, tuning: Tuning) -> tuple[State, Info]:
        """Return the next state and what diagnostics, and the adaptation, need of the step.

        Args:
            key: (chain,) typed keys, one per chain.
            state: from `init` or `step`.
            target: the log density.
            tuning: from `tuning`.

        Returns:
            The state, and an Info. Its fields in `statistics` are (chain,), of the reported chains alone, or scalars
            that all chains share.
        """

    @abstractmethod
    def init_adaptation(self, state: State, target: Target) -> Adaptation:
        """Return the adaptation before the first warmup iteration."""

    @abstractmethod
    def adapt(self, adaptation: Adaptation, before: State, after: State, info: Info, target: Target) -> Adaptation:
        """Learn from one warmup iteration, which led from `before` to `after`; called `num_adaptive` times."""

    @abstractmethod
    def tuning(self, adaptation: Adaptation, is_adapting: jax.Array | bool) -> Tuning:
        """Return what `step` reads; without `is_adapting`, () bool, it stays as it is from iteration to iteration."""

    @abstractmethod
    def state_axes(self) -> State:
        """Return the `Axes` of every array of a state, in its place."""

    @abstractmethod
    def adaptation_axes(self) -> Adaptation:
        """Return the `Axes` of every array of an adaptation, in its place."""


def first_chains[Tree](tree: Tree, num_chains: int) -> Tree:
    """Return the first chains of every array (chain, ...); a scalar is left as it is."""
    first: Tree = jax.tree.map(lambda x: x[:num_chains] if x.ndim else x, tree)
    return first
