"""A small normal target, and the programs in which the tests of the kernels' contract run every kernel on it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.config.registry import load_component
from bayesmesh.kernels.base import Density, DensityParts, Kernel, Position, Target, first_chains
from kernel_options import kernel_options

NUM_CHAINS, NUM_WARMUP, MOST = 6, 60, 60
NUM_SHARED, NUM_ENTRIES, WIDTH = 4, 4, 2
PADDED, BEHIND = 1, 3
"""Entries at the end of the local part that are padding; and those that another number of devices adds behind them."""

FEW_WARMUP = 12
"""Iterations over which the rounding errors of two programs stay small; windows of warmup close among them."""

SHORT = {"nuts": {"max_tree_depth": 5}, "nuts, split": {"max_tree_depth": 5, "integrator": "split"}}
"""Kernel, with a word for what differs from its defaults -> options that are compiled in and keep transitions short."""


class Box(Target):
    """Independent normals with precision 1 + number of the coordinate; a quarter of it called prior.

    Padding has no part in it. Where a shared coordinate but the last is beyond `half_width` the log likelihood is `height`
    less; a height that is not finite ends the world there.

    Args:
        height: nats.
        behind: further entries of padding.
        half_width: from the origin to a wall.
    """

    def __init__(
        self,
        height: jax.Array | float = 0.0,
        behind: int = 0,
        dtype: str = "float64",
        half_width: jax.Array | float = 1.5,
    ) -> None:
        self.height, self.num_entries, self.dtype, self.half_width = height, NUM_ENTRIES + behind, dtype, half_width

    @property
    def mask(self) -> Position:
        is_entry = jnp.arange(self.num_entries) < NUM_ENTRIES - PADDED
        return Position(None, is_entry.astype(self.dtype)[:, None])

    def log_density_parts(self, position: Position) -> DensityParts:
        def of_chain(q: Position) -> jax.Array:
            flat = jnp.concatenate([q.shared, q.local[: NUM_ENTRIES - PADDED].ravel()])
            return -0.5 * jnp.sum((1 + jnp.arange(flat.size, dtype=flat.dtype)) * flat**2, dtype=jnp.float64)

        value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
        outside = jnp.abs(position.shared[:, :-1]).max(axis=1) > self.half_width
        log_likelihood = 0.75 * value - jnp.where(outside, self.height, 0.0)
        of_prior, of_likelihood = (jax.tree.map(lambda g, c=c: c * g, gradient) for c in (0.25, 0.75))
        return DensityParts(0.25 * value, log_likelihood, of_prior, of_likelihood)

    def log_density(self, position: Position) -> Density:
        log_prior, log_likelihood, *gradients = self.log_density_parts(position)
        return Density(log_prior, log_likelihood, jax.tree.map(jnp.add, *gradients))


def box_density(position: Position) -> np.ndarray:
    """Return the log density of the box at points within it, (chain,) float64."""
    shared, local = (np.asarray(x) for x in position)
    flat = np.concatenate([shared, local[:, : NUM_ENTRIES - PADDED].reshape(len(local), -1)], axis=1)
    return -0.5 * ((1 + np.arange(flat.shape[1])) * flat**2).sum(axis=1)


class Counted(Box):
    """A box that appends to a list whenever its gradient is taken."""

    def __init__(self, calls: list[int]) -> None:
        super().__init__()
        self.calls = calls

    def log_density_parts(self, position: Position) -> DensityParts:
        jax.debug.callback(lambda: self.calls.append(1))
        return super().log_density_parts(position)


class Arguments(NamedTuple):
    """What a compiled loop is called with: numeric options, () int32 warmup iterations, two numbers of `Box`, a seed."""

    options: dict[str, Any]
    num_warmup: Any = NUM_WARMUP
    height: Any = 0.0
    half_width: Any = 1.5
    seed: Any = 8


class Chains(NamedTuple):
    """State and adaptation; with nothing else it is the checkpoint."""

    state: Any
    adaptation: Any


def make(name: str, num_warmup: int = NUM_WARMUP, **options: Any) -> Kernel:
    component, options = name.split(",")[0], SHORT.get(name, {}) | options
    return load_component("kernel", component)(kernel_options(component, **options), num_warmup)


@functools.cache
def initial_position(num_chains: int = NUM_CHAINS, behind: int = 0, dtype: str = "float64", seed: int = 5) -> Position:
    key_shared, key_local = jax.random.split(jax.random.key(seed))
    shared = jax.random.normal(key_shared, (num_chains, NUM_SHARED), dtype)
    local = jax.random.normal(key_local, (num_chains, NUM_ENTRIES, WIDTH), dtype).at[:, -PADDED:].set(0)
    return Position(shared, jnp.pad(local, ((0, 0), (0, behind), (0, 0))))


def near_mode(lost: int | None = None) -> Position:
    """Chains within the box, but for one that is nowhere."""
    start = initial_position()
    shared = 0.1 * start.shared
    return start._replace(shared=shared if lost is None else shared.at[lost].set(jnp.inf))


def key_at(iteration: Any, num_chains: int = NUM_CHAINS, seed: Any = 8) -> jax.Array:
    """Typed keys of the chains, by absolute index."""
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(num_chains))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def begin(kernel: Kernel, target: Box, position: Position, seed: Any = 8) -> Chains:
    num_chains = position.shared.shape[0]
    state = kernel.init(key_at(2**31, num_chains, seed), position, target)
    return Chains(state, kernel.init_adaptation(state, target))


def advance(kernel: Kernel, target: Box, chains: Chains, index: Any, seed: Any = 8) -> tuple[Chains, Any]:
    """Make iteration `index`, and learn from it where it is adaptive, as `sampling.program` does."""
    is_adapting = jnp.asarray(index, jnp.int32) < kernel.num_adaptive
    num_chains = chains.state.log_prior.shape[0]
    tuning = kernel.tuning(chains.adaptation, is_adapting)
    state, info = kernel.step(key_at(index, num_chains, seed), chains.state, target, tuning)
    adaptation = jax.lax.cond(
        is_adapting,
        lambda: kernel.adapt(chains.adaptation, chains.state, state, info, target),
        lambda: chains.adaptation,
    )
    state, info = kernel.restart(adaptation, state, info)
    return Chains(state, adaptation), info


def loop(kernel: Kernel, target: Box, chains: Chains, first: Any, count: Any, seed: Any = 8) -> tuple[Chains, Any]:
    """Make `count` iterations; a state that changes its structure, a shape or a dtype is refused by JAX."""

    def made(chains: Chains, index: Any) -> tuple[Chains, Any]:
        chains, info = advance(kernel, target, chains, index, seed)
        num_reported = kernel.num_chains_reported(len(chains.state.log_prior))
        statistics = {k: getattr(info, k) for k in kernel.statistics}
        return chains, (statistics, first_chains(chains.state.position, num_reported))

    step = jax.jit(made, inline=True)

    def one(i: jax.Array, carry: tuple[Chains, Any]) -> tuple[Chains, Any]:
        chains, out = step(carry[0], first + i)
        return chains, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), carry[1], out)

    shapes = jax.eval_shape(step, chains, first)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((MOST, *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, (chains, empty))


class Runs:
    """The programs of a kernel, whose numbers are arguments: they are compiled once for all tests.

    Attributes:
        calls: one entry for each gradient that `step` has taken.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.kernel = kernel = make(name, **options)
        self.calls: list[int] = []
        self._begin = jax.jit(self._trace_begin)
        self._loop = jax.jit(self._trace_loop)
        self._elsewhere = jax.jit(self._trace_elsewhere)
        self.tuning = jax.jit(lambda chains: kernel.tuning(chains.adaptation, False))
        self.step = jax.jit(lambda key, state, tuning: kernel.step(key, state, Counted(self.calls), tuning))

    def _trace_begin(self, arguments: Arguments, position: Position) -> Chains:
        return begin(self._kernel(arguments), self._target(arguments), position, arguments.seed)

    def _trace_loop(self, arguments: Arguments, chains: Chains, first: Any, count: Any) -> tuple[Chains, Any]:
        return loop(self._kernel(arguments), self._target(arguments), chains, first, count, arguments.seed)

    def _target(self, arguments: Arguments) -> Box:
        return Box(arguments.height, half_width=arguments.half_width)

    def _kernel(self, arguments: Arguments) -> Kernel:
        return self.kernel.with_arguments(arguments.options, arguments.num_warmup)

    def arguments(self, **changed: Any) -> Arguments:
        """Arguments, all of them arrays; `changed` are fields of `Arguments` or options of the kernel."""
        fields = {k: changed.pop(k) for k in list(changed) if k in Arguments._fields}
        assert changed.keys() <= self.kernel.numeric_options.keys()
        options = {k: jnp.asarray(v) for k, v in (self.kernel.numeric_options | changed).items()}
        given = Arguments(options, **fields)
        return Arguments(
            options,
            jnp.asarray(given.num_warmup, jnp.int32),
            jnp.asarray(given.height, jnp.float64),
            jnp.asarray(given.half_width, jnp.float64),
            jnp.asarray(given.seed, jnp.uint32),
        )

    def begin(self, position: Position | None = None, **changed: Any) -> Chains:
        return self._begin(self.arguments(**changed), initial_position() if position is None else position)

    def go(self, chains: Chains, first: int, count: int, **changed: Any) -> tuple[Chains, dict[str, Any], Position]:
        """Return chains, and on the host statistics (iteration, ...) and positions (iteration, reported chain, ...)."""
        chains, out = self._loop(self.arguments(**changed), chains, jnp.asarray(first), jnp.asarray(count))
        return chains, *jax.tree.map(lambda x: x[:count], jax.device_get(out))

    def warm_up(self, position: Position | None = None, **changed: Any) -> Chains:
        return self.go(self.begin(position, **changed), 0, NUM_WARMUP, **changed)[0]

    # -- the same chains in another program ----------------------------------------------------------------------------

    @property
    def changed(self) -> dict[str, Any]:
        """Other options than by default."""
        return {k: 0.75 * v for k, v in self.kernel.numeric_options.items() if isinstance(v, float)}

    def _trace_elsewhere(self, seeds: jax.Array, positions: Position) -> tuple[Chains, Any]:
        # Options and the length of warmup are those that are compiled in here.
        kernel, target = make(self.name, FEW_WARMUP, **self.changed), Box(behind=BEHIND)

        def one(seed: jax.Array, position: Position) -> tuple[Chains, Any]:
            return loop(kernel, target, begin(kernel, target, position, seed), 0, FEW_WARMUP + 2, seed)

        return jax.vmap(one)(seeds, positions)

    def elsewhere(self, *seeds: int) -> tuple[Chains, dict[str, Any], Position]:
        """Return what a short warmup and two draws are of several chain sets, (set, ...).

        The program is mapped over the sets, its numbers are compiled in, and positions have padding behind the entries.
        """
        starts = jax.tree.map(lambda *x: jnp.stack(x), *(initial_position(behind=BEHIND, seed=s) for s in seeds))
        chains, out = jax.device_get(self._elsewhere(jnp.asarray(seeds, jnp.uint32), starts))
        return chains, *jax.tree.map(lambda x: x[:, : FEW_WARMUP + 2], out)

    def few(self, **changed: Any) -> tuple[Chains, dict[str, Any], Position]:
        """Return the same of one chain set in this kernel's own program."""
        arguments = {"num_warmup": FEW_WARMUP, **changed}
        start = self.begin(initial_position(seed=changed.get("seed", 8)), **arguments)
        return self.go(start, 0, FEW_WARMUP + 2, **arguments)


@functools.cache
def runs_of(name: str, metric: str | None = None) -> Runs:
    """The programs of a kernel by its options that are compiled in."""
    return Runs(name, **({} if metric is None else {"metric": metric}))
