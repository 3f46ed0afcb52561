"""The contract of a transition kernel: positions, its invariant target, and the sharding of its arrays."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from bayesmesh.config.settings import Settings, numeric_options, replace_options


class Position(NamedTuple):
    """The position of chains: at most two arrays in unconstrained space, whatever the number of latents.

    Attributes:
        shared: (chain, S) coordinates shared by all rows, or None.
        local: (chain, entry, k) coordinates with one entry per user, group or row, padded after the last; or None.

    Without the chain axis, the same pair has one number per coordinate: a scale, a variance, a mask.
    """

    shared: jax.Array | None
    local: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Axes:
    """Sharding of an array over the mesh: ``chain``, ``entry``, ``spread`` or None for each axis; further axes are replicated.

    ``spread`` is for arrays that all chains share: the axis is sharded over the devices along the rows, if their number
    divides its length.

    >>> Axes("chain", None).names
    ('chain', None)
    """

    names: tuple[str | None, ...]

    def __init__(self, *names: str | None) -> None:
        object.__setattr__(self, "names", names)


SCALAR = Axes()
CHAIN = Axes("chain")
POSITION: Any = Position(Axes("chain", None), Axes("chain", "entry", None))  # type: ignore[arg-type]  # axes stand in for arrays
"""Axes of a `Position` with its chain axis."""
COORDINATES: Any = Position(Axes(None), Axes("entry", None))  # type: ignore[arg-type]  # axes stand in for arrays
"""Axes of a `Position` without it."""


class Density(NamedTuple):
    """Log density of a batch of positions and its gradient.

    Attributes:
        log_prior: (chain,) float64, nats, with the log Jacobian of the map from unconstrained space.
        log_likelihood: (chain,) float64, nats.
        gradient: gradient of their sum, shaped like the position.
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

    def total(self) -> Density:
        """Return both terms with the gradient of their sum."""
        gradient = map_parts(jnp.add, self.prior_gradient, self.likelihood_gradient)
        return Density(self.log_prior, self.log_likelihood, gradient)


@runtime_checkable
class Target(Protocol):
    """A log density for kernels.

    Attributes:
        mask: 1 for coordinates and 0 for padding, without the chain axis; None for a part without padding. A kernel
            never moves padding.
        has_unit_scale: whether coordinates have means of about 0, variances of about 1 and little correlation.
    """

    has_unit_scale: bool = False

    @property
    def mask(self) -> Position: ...

    def log_density(self, position: Position) -> Density:
        """Return log prior, log likelihood and the gradient of their sum; override it where one joint evaluation is cheaper."""
        return self.log_density_parts(position).total()

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return the same with separate gradients of prior and likelihood; costs a little more."""
        ...


class Statistic(NamedTuple):
    """One field of `sample_stats`: its unit, ``1`` if dimensionless, and a one-sentence description."""

    unit: str
    description: str


class Kernel[State, Tuning, Info, Adaptation](ABC):
    """A Markov kernel over a batch of chains: pure, vectorised over the chain axis, and without a loop over draws.

    A state is a pytree of arrays and is itself the checkpoint: nothing is recomputed on resume. It has at least the
    fields ``position``, ``log_prior`` and ``log_likelihood``. The adaptation is what a kernel updates during warmup; the
    tuning is the part of it that `step` reads. Statistics over chains pool only the chains of one call, so that a kernel
    can be mapped over an additional axis of chain sets.

    Class attributes:
        pretty_name, reference: name and reference in tables.
        min_chains: smallest number of chains that run together.
        chain_multiple: the number of chains must be a multiple of it.
        is_adjusted: whether an accept step makes the target exactly invariant.
        interacts: whether chains interact after warmup. If all of them are reported, they are then one population.
        is_population: whether the chains of a group share their origin, so that how many are in a mode estimates its mass.
            Gates then compare chain groups wherever chains disagree.
        starts_from_prior: whether chains must start as draws from the prior.
        needs_normal_units: whether it runs only on models with `normal_groups`; it raises for others when it is traced.
        steps_alone: whether each device steps its own chains without waiting for the others; for steps of unequal
            length in which no chain depends on another.
        restarts_chains: whether `restart` moves chains; the kernel then has the option `restart_lost_chains`, which
            turns this off, and the statistic `restarted`.
        continues_others: whether chains can continue from the adaptation of other chains, see `adopt`.
        statistics: field of Info -> unit and meaning; these fields become `sample_stats`. They always include
            ``lp`` and ``log_likelihood`` (nats), and ``n_steps``, the gradients of a step, not counting those
            during which the chain only waits.

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
    is_population: ClassVar[bool] = False
    starts_from_prior: ClassVar[bool] = False
    needs_normal_units: ClassVar[bool] = False
    steps_alone: ClassVar[bool] = False
    restarts_chains: ClassVar[bool] = False
    continues_others: ClassVar[bool] = False
    statistics: ClassVar[Mapping[str, Statistic]]

    def __init__(self, options: Settings, num_warmup: int | Int[Array, ""]) -> None:
        self.options: Any = options
        self.num_warmup = num_warmup

    def with_arguments(
        self, options: Mapping[str, Any], num_warmup: Int[Array, ""]
    ) -> Kernel[State, Tuning, Info, Adaptation]:
        """Return this kernel with its numeric options and the length of warmup replaced by arguments of a program."""
        made = copy.copy(self)
        made.options, made.num_warmup = replace_options(self.options, options, np.float64), num_warmup
        return made

    @property
    def numeric_options(self) -> dict[str, float | int]:
        """Options that are arguments of a program instead of compiled constants."""
        return numeric_options(self.options)

    @property
    def num_adaptive(self) -> int | Int[Array, ""]:
        """Number of leading warmup iterations that may change the tuning; all by default."""
        return self.num_warmup

    def num_chains_reported(self, num_chains: int) -> int:
        """Return how many of `num_chains` chains, counted from the first, sample from the target."""
        return num_chains

    def are_population(self, num_chains: int) -> bool:
        """Return whether the reported ones of `num_chains` chains are one population instead of independent replicates."""
        return self.is_population or (self.interacts and self.num_chains_reported(num_chains) == num_chains)

    @abstractmethod
    def expected_gradients(self) -> float:
        """Return the expected gradients per draw, to plan a segment before any measurement."""

    def most_gradients(self) -> float:
        """Return the most gradients of a draw, which bound a call of the program; by default those that are expected."""
        return self.expected_gradients()

    @abstractmethod
    def init(self, key: Key[Array, " chain"], position: Position, target: Target) -> State:
        """Return the state at a position.

        Args:
            key: (chain,) typed keys, one per chain.
            position: where the chains start.
            target: the log density.
        """

    @abstractmethod
    def step(self, key: Key[Array, " chain"], state: State, target: Target, tuning: Tuning) -> tuple[State, Info]:
        """Return the next state, and the info for diagnostics and adaptation.

        Args:
            key: (chain,) typed keys, one per chain.
            state: from `init` or `step`.
            target: the log density.
            tuning: from `tuning`.

        Returns:
            The state, and an Info. Its fields in `statistics` are (chain,), of the reported chains alone, or scalars
            that all chains share.
        """

    def num_iterations(self, state: State) -> Int[Array, ""] | None:
        """Return the state's iteration counter, a number that all chains share; None, the default, if it has no counter."""
        return None

    def at_iteration(self, state: State, number: Int[Array, ""]) -> State:
        """Return the state with its iteration counter set to `number`.

        The program passes the `num_iterations` of one dataset to all datasets, which share it. A branch that depends on it
        is then skipped, rather than computed for every dataset and discarded.
        """
        return state

    @abstractmethod
    def init_adaptation(self, state: State, target: Target) -> Adaptation:
        """Return the adaptation before the first warmup iteration."""

    def adopt(self, adaptation: Adaptation, relative: Adaptation) -> Adaptation:
        """Return the adaptation of chains that continue from what others, on other data, have adapted to.

        Args:
            adaptation: from `init_adaptation`.
            relative: that of the other chains after their warmup.
        """
        raise NotImplementedError

    @abstractmethod
    def adapt(self, adaptation: Adaptation, before: State, after: State, info: Info, target: Target) -> Adaptation:
        """Adapt after one warmup iteration from `before` to `after`; called `num_adaptive` times."""

    def restart(self, adaptation: Adaptation, state: State, info: Info) -> tuple[State, Info]:
        """Return state and info after an iteration and `adapt`, with chains moved to other positions where necessary.

        It is also called after warmup, and must then return the state and info that it is given. By default, chains stay where they are.
        """
        return state, info

    @abstractmethod
    def tuning(self, adaptation: Adaptation, is_adapting: Bool[Array, ""] | bool) -> Tuning:
        """Return the tuning that `step` reads; constant over iterations unless `is_adapting`, () bool."""

    @abstractmethod
    def state_axes(self) -> State:
        """Return a tree like the state, with `Axes` in place of arrays; one `Axes` may stand for all arrays of a tuple."""

    @abstractmethod
    def adaptation_axes(self) -> Adaptation:
        """Return a tree like the adaptation, with `Axes` in place of arrays."""


class TakesTurns[State, Work, Tuning, Info](ABC):
    """A kernel whose transitions take unequal numbers of gradients: its `step` in parts, from which chains take turns.

    Chains then need not wait for the longest transition among them. Every array of a state has a chain axis, except a
    shared iteration counter; all chains are reported, and no chain depends on another. Within the parts, the counter has one
    value per chain, (chain,), because chains are at different draws. `end` gets no key: draw what it needs in `begin`. Chains of a
    subclass that overrides `step` wait. List this class before that of the kernel.
    """

    @abstractmethod
    def begin(self, key: Key[Array, " chain"], state: State, target: Target, tuning: Tuning) -> Work:
        """Return the transitions of all chains, before their first gradient."""

    @abstractmethod
    def advance(self, key: Key[Array, " chain"], work: Work, state: State, target: Target, tuning: Tuning) -> Work:
        """Return the transitions one gradient later; those that are complete are unchanged."""

    @abstractmethod
    def renew(self, work: Work, begun: Work, renews: Bool[Array, " chain"]) -> Work:
        """Return the transitions of `begun` for the chains in `renews`, and those of `work` for the others."""

    @abstractmethod
    def is_complete(self, work: Work) -> Bool[Array, " chain"]:
        """Return which transitions are complete."""

    @abstractmethod
    def end(self, work: Work, state: State, tuning: Tuning) -> tuple[State, Info]:
        """Return what `step` returns; valid for the chains whose transition is complete."""

    def step(self, key: Key[Array, " chain"], state: State, target: Target, tuning: Tuning) -> tuple[State, Info]:
        """Make a transition of every chain; all wait for the longest."""
        work = jax.lax.while_loop(
            lambda work: ~self.is_complete(work).all(),
            lambda work: self.advance(key, work, state, target, tuning),
            self.begin(key, state, target, tuning),
        )
        return self.end(work, state, tuning)


def map_parts(function: Callable[..., jax.Array], *positions: Position) -> Position:
    """Apply a function to corresponding parts of positions, and return the results as a position."""
    return jax.tree.map(function, *positions)


def keep_computed[Tree](values: Tree) -> Tree:
    """Return arrays unchanged; XLA would compute small ones again in every fused loop that uses them (record 0023)."""
    return jax.lax.optimization_barrier(values)


def sum_together(*terms: jax.Array, axes: Sequence[int]) -> tuple[jax.Array, ...]:
    """Return the sums of arrays of one shape and dtype over some axes, in one loop instead of two per array."""

    def add(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    return tuple(jax.lax.reduce(terms, tuple(jnp.zeros((), x.dtype) for x in terms), add, tuple(axes)))


def first_chains[Tree](tree: Tree, num_chains: int) -> Tree:
    """Return the first chains of every array (chain, ...); scalars are unchanged."""
    return jax.tree.map(lambda x: x[:num_chains] if x.ndim else x, tree)
