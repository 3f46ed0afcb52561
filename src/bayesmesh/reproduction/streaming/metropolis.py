"""Random-walk Metropolis for many scalar chains: running moments, no draws, one fused loop over tiles of chains.

What makes it fast on a CPU: all operations are elementwise over chains, random bits are a function of (seed, chain,
step), and a block of steps has a single output, so that XLA compiles it to one loop over chains in which state, bits and
densities stay in registers. Chains are taken in tiles that fit the innermost cache, and spread over devices. Acceptance
needs no logarithm: a proposal is accepted when ``u * density(x) < density(proposal)``.

Reference:
    Metropolis et al. 1953, "Equation of state calculations by fast computing machines", doi:10.1063/1.1699114.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bayesmesh.reproduction.streaming.packing import pack, unpack
from bayesmesh.reproduction.streaming.philox import philox4x32
from bayesmesh.reproduction.streaming.variates import normal_pair, uniform

__all__ = ["BLOCK_STEPS", "TILE_CHAINS", "DensityFn", "Layout", "Moments", "Program", "Walk", "compile_walk", "lay_out"]

DensityFn = Callable[[jax.Array], jax.Array]
"""Density up to a factor, elementwise on float32; positive where a chain starts."""

BLOCK_STEPS = 8
"""Steps in one loop over chains."""

TILE_CHAINS = 2048
"""Chains of a tile: their state and sums, 48 KiB, stay in the inner caches."""

_LANES = 16
"""Tiles are a multiple of this, so that every loop is over whole vectors."""

_KEY = (0x243F6A88, 0x85A308D3)
"""Of the generator: the first digits of pi. The seed is in the counter, because a key that is known when the program is
compiled makes it a third faster, and a counter is mixed no less than a key."""

_AXIS = "chain"

_State = tuple[jax.Array, ...]
"""Of the chains of a tile: what a `Walk` holds but the steps taken, in its order."""


class Walk(NamedTuple):
    """State of all chains, and sums over the states that they were in; a rejected step counts its state again.

    Attributes:
        position: float32 (device, tile, chain).
        total: sum of the positions after each step, float64 of that shape.
        thinned: sum of every `BLOCK_STEPS`-th position, float64.
        squares: sum of the squares of the same, float64.
        taken: steps taken, int64 scalar.
    """

    position: jax.Array
    total: jax.Array
    thinned: jax.Array
    squares: jax.Array
    taken: jax.Array


class Moments(NamedTuple):
    """Of all states of all chains.

    Attributes:
        num_states: of all chains.
        mean: of all of them.
        variance: of every `BLOCK_STEPS`-th, about the mean of the same.
    """

    num_states: int
    mean: float
    variance: float


class Layout(NamedTuple):
    """Chains as (device, tile, chain of tile), padded behind the last; padded chains run and are dropped."""

    num_chains: int
    num_devices: int
    num_tiles: int
    tile_chains: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.num_devices, self.num_tiles, self.tile_chains


def lay_out(num_chains: int, num_devices: int, tile_chains: int = TILE_CHAINS) -> Layout:
    """Split chains over devices and tiles, with as little padding as whole vectors allow.

    >>> lay_out(100_000, 2)
    Layout(num_chains=100000, num_devices=2, num_tiles=25, tile_chains=2000)
    """
    num_devices = min(num_devices, -(-num_chains // _LANES))
    each = -(-num_chains // num_devices)
    num_tiles = -(-each // tile_chains)
    tile = -(-each // num_tiles)
    return Layout(num_chains, num_devices, num_tiles, -(-tile // _LANES) * _LANES)


@dataclasses.dataclass(frozen=True)
class _Control:
    """Scalars of a run: seed, scale, and the steps that count; blocks at both ends may lie partly outside of them."""

    seed: jax.Array
    scale: jax.Array
    first: jax.Array
    stop: jax.Array


def _take_block(
    density_fn: DensityFn, position: jax.Array, chain: jax.Array, block: jax.Array, control: _Control
) -> tuple[jax.Array, jax.Array]:
    """Take those steps of a block that count; returns positions, and the sum of the positions after each."""
    density, total = density_fn(position), jnp.zeros_like(position)
    for number in range(BLOCK_STEPS // 2):
        pair = block * (BLOCK_STEPS // 2) + number
        low, high = pair.astype(jnp.uint32), (pair >> 32).astype(jnp.uint32)
        full = functools.partial(jnp.full_like, chain)
        radius, angle, *accept = philox4x32((full(low), full(high), chain, full(control.seed)), _KEY)
        for half, (move, bits) in enumerate(zip(normal_pair(radius, angle), accept, strict=True)):
            step = 2 * pair + half
            counts = (step >= control.first) & (step < control.stop)
            proposal = position + control.scale * move
            proposed = density_fn(proposal)
            is_accepted = counts & (uniform(bits) * density < proposed)
            position = jnp.where(is_accepted, proposal, position)
            density = jnp.where(is_accepted, proposed, density)
            total += position * counts.astype(jnp.float32)
    return position, total


def _walk_tile(density_fn: DensityFn, walk: _State, chain: jax.Array, control: _Control) -> _State:
    """Take all steps of the chains of a tile."""

    def body(block: jax.Array, carry: _State) -> _State:
        packed, total, thinned, squares = carry
        packed = pack(*_take_block(density_fn, unpack(packed)[0], chain, block, control))
        # Float64 once a block; within it the sum is of few numbers.
        position, added = (each.astype(jnp.float64) for each in unpack(packed))
        is_whole = (block + 1) * BLOCK_STEPS <= control.stop
        counted = jnp.where(is_whole, position, 0.0)
        return packed, total + added, thinned + counted, squares + counted * counted

    position, *sums = walk
    first, stop = control.first // BLOCK_STEPS, -(-control.stop // BLOCK_STEPS)
    start = (pack(position, jnp.zeros_like(position)), *sums)
    packed, *sums = lax.fori_loop(first, stop, body, start)
    return unpack(packed)[0], *sums


def _walk_device(
    density_fn: DensityFn, layout: Layout, walk: Walk, steps: jax.Array, scale: jax.Array, seed: jax.Array
) -> Walk:
    """Take all steps of the chains of one device, tile after tile; within `shard_map`."""
    control = _Control(seed, scale, walk.taken, walk.taken + steps)
    before = lax.axis_index(_AXIS) * (layout.num_tiles * layout.tile_chains)

    def tile(carry: tuple[jax.Array, ...]) -> _State:
        number, *state = carry
        chain = jnp.arange(layout.tile_chains) + (before + number * layout.tile_chains)
        return _walk_tile(density_fn, tuple(state), chain.astype(jnp.uint32), control)

    state = (each[0] for each in walk[:-1])
    walked = lax.map(tile, (jnp.arange(layout.num_tiles), *state))
    position, total, thinned, squares = (each[None] for each in walked)
    return Walk(position, total, thinned, squares, control.stop)


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled walk; the number of steps, the scale and the seed are arguments, so that one program serves them all.

    Attributes:
        layout: of chains over devices and tiles.
        sharding: of the arrays of a `Walk`.
        everywhere: of its scalar.
        walk: takes (Walk, steps, scale, seed); returns the Walk after so many steps more.
    """

    layout: Layout
    sharding: NamedSharding
    everywhere: NamedSharding
    walk: Callable[[Walk, np.int64, np.float32, np.uint32], Walk]

    def start(self, position: float) -> Walk:
        """Return all chains at one position, with no steps taken."""
        shape = self.layout.shape
        total, thinned, squares = (jax.device_put(np.zeros(shape), self.sharding) for _ in range(3))
        at = jax.device_put(np.full(shape, position, np.float32), self.sharding)
        return Walk(at, total, thinned, squares, jax.device_put(np.int64(0), self.everywhere))

    def advance(self, walk: Walk, num_steps: int, *, scale: float, seed: int) -> Walk:
        """Return the chains after more steps. A run that is cut anywhere is the same run: bit for bit in its positions.

        Args:
            walk: the chains.
            num_steps: steps to take.
            scale: standard deviation of the proposal.
            seed: of the whole run, below 2**32.
        """
        # NumPy's scalars, for which no program runs: a short walk takes less time than such a program.
        return self.walk(walk, np.int64(num_steps), np.float32(scale), np.uint32(seed))

    def moments(self, walk: Walk) -> Moments:
        """Return the moments so far; the variance is NaN before the first whole block.

        The sums are in float64 about 0, in which squares of float32 are exact: what the variance loses, about 1e-16 of the
        squared mean times the root of the blocks, is less than what float32 positions lose so far from 0.
        """
        taken, chains = int(walk.taken), self.layout.num_chains
        mean, blocks = float(self.chains(walk.total).mean()) / taken, taken // BLOCK_STEPS
        if not blocks:
            return Moments(taken * chains, mean, float("nan"))
        thinned, square = (float(self.chains(each).mean()) / blocks for each in (walk.thinned, walk.squares))
        return Moments(taken * chains, mean, square - thinned**2)

    def chains(self, array: jax.Array) -> np.ndarray:
        """Return an array of a `Walk` as (chain,), without padding."""
        return np.asarray(array).ravel()[: self.layout.num_chains]


def compile_walk(
    density_fn: DensityFn, num_chains: int, devices: Sequence[jax.Device], tile_chains: int = TILE_CHAINS
) -> Program:
    """Compile the walk of so many chains. Needs `jax_enable_x64`.

    Args:
        density_fn: the target.
        num_chains: all of them.
        devices: to spread chains over; fewer are used where chains are few.
        tile_chains: the largest tile; on an accelerator as many as there are chains.
    """
    layout = lay_out(num_chains, len(devices), tile_chains)
    mesh = Mesh(np.array(devices[: layout.num_devices]), (_AXIS,))
    spread, whole = PartitionSpec(_AXIS), PartitionSpec()
    specs = Walk._make([spread, spread, spread, spread, whole])
    body = functools.partial(_walk_device, density_fn, layout)
    walk = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(specs, whole, whole, whole), out_specs=specs))
    sharding = NamedSharding(mesh, spread)
    everywhere = NamedSharding(mesh, whole)

    def shape_of(dtype: type, shape: tuple[int, ...] = (), place: NamedSharding = everywhere) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    position = shape_of(np.float32, layout.shape, sharding)
    sums = shape_of(np.float64, layout.shape, sharding)
    shapes = Walk._make([position, sums, sums, sums, shape_of(np.int64)])
    compiled = walk.lower(shapes, shape_of(np.int64), shape_of(np.float32), shape_of(np.uint32)).compile()
    return Program(layout, sharding, everywhere, compiled)
