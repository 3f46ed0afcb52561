"""Random-walk Metropolis for many scalar chains: running moments instead of draws, one fused loop over tiles of chains.

Three properties make it fast on a CPU. All operations are elementwise over chains. Random bits are a function of (seed,
chain, step). A block of steps has a single output, so that XLA compiles it to one loop over chains which keeps state, bits
and densities in registers. Chains are processed in tiles that fit into the innermost cache, and spread over devices.
Acceptance needs no logarithm: a proposal is accepted when ``u * density(x) < density(proposal)``.

Reference:
    Metropolis et al. 1953, "Equation of state calculations by fast computing machines", doi:10.1063/1.1699114.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bayesmesh_reproduction.streaming.variates import normal_pair, philox4x32, uniform

DensityFn = Callable[[jax.Array], jax.Array]
"""Density up to a constant factor, elementwise on float32; positive where a chain starts."""

BLOCK_STEPS = 8
"""Steps in one loop over chains."""

TILE_CHAINS = 2048
"""Chains of a tile: their state and sums, 48 KiB, stay in the inner caches."""

_LANES = 16
"""Tile sizes are multiples of this, so that every loop runs over whole vectors."""

_KEY = (0x243F6A88, 0x85A308D3)
"""Key of the generator: the first digits of pi. The seed is part of the counter instead: a key known at compile time makes
the program a third faster, and the counter is mixed as thoroughly as the key."""

_AXIS = "chain"

Shape = tuple[int, int, int]
"""Chains as (device, tile, chain of tile), padded at the end; padding chains run and are dropped."""

_State = tuple[jax.Array, ...]
"""State of the chains of a tile: the fields of a `Walk` without `taken`, in order."""


class Walk(NamedTuple):
    """State of all chains, and sums over visited states; a rejected proposal counts the present state again.

    Attributes:
        position: float32 (device, tile, chain).
        total: sum of the positions after each step, float64, same shape.
        thinned: sum of every `BLOCK_STEPS`-th position, float64.
        squares: sum of the squares of the positions in `thinned`, float64.
        taken: number of steps taken, int64 scalar.
    """

    position: jax.Array
    total: jax.Array
    thinned: jax.Array
    squares: jax.Array
    taken: jax.Array


class Moments(NamedTuple):
    """Moments over all chains.

    Attributes:
        num_states: number of states of all chains.
        mean: mean over all states.
        variance: variance of every `BLOCK_STEPS`-th state, about the mean of the same states.
    """

    num_states: int
    mean: float
    variance: float


def lay_out(num_chains: int, num_devices: int, tile_chains: int = TILE_CHAINS) -> Shape:
    """Split chains over devices and tiles, with as little padding as whole vectors allow.

    >>> lay_out(100_000, 2)
    (2, 25, 2000)
    """
    num_devices = min(num_devices, -(-num_chains // _LANES))
    each = -(-num_chains // num_devices)
    num_tiles = -(-each // tile_chains)
    tile = -(-each // num_tiles)
    return num_devices, num_tiles, -(-tile // _LANES) * _LANES


class _Control(NamedTuple):
    """Scalars of a run. Only steps from `first` to before `stop` count: the first and last block may extend beyond them."""

    seed: jax.Array
    scale: jax.Array
    first: jax.Array
    stop: jax.Array


def _pack(high: jax.Array, low: jax.Array) -> jax.Array:
    """Return the bits of two float32 arrays as one uint64 array.

    XLA's CPU backend fuses elementwise operations into one loop per output. What two outputs share is computed twice or
    written to memory, and here they share all of the work.

    >>> with jax.enable_x64(True):
    ...     numbers = _unpack(_pack(jnp.float32(-1.5), jnp.float32(1e-38)))
    ...     [bool(number == given) for number, given in zip(numbers, (jnp.float32(-1.5), jnp.float32(1e-38)))]
    [True, True]
    """
    first, second = (lax.bitcast_convert_type(each, jnp.uint32).astype(jnp.uint64) for each in (high, low))
    return (first << jnp.uint64(32)) | second


def _unpack(packed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the two float32 arrays."""
    halves = (packed >> jnp.uint64(32)).astype(jnp.uint32), packed.astype(jnp.uint32)
    return lax.bitcast_convert_type(halves[0], jnp.float32), lax.bitcast_convert_type(halves[1], jnp.float32)


def _take_block(
    density_fn: DensityFn, position: jax.Array, chain: jax.Array, block: jax.Array, control: _Control
) -> tuple[jax.Array, jax.Array]:
    """Take the steps of a block that count; returns positions, and the sum of the positions after each step."""
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
        packed = _pack(*_take_block(density_fn, _unpack(packed)[0], chain, block, control))
        # Sums are float64 across blocks; float32 suffices for the few numbers within one.
        position, added = (each.astype(jnp.float64) for each in _unpack(packed))
        is_whole = (block + 1) * BLOCK_STEPS <= control.stop
        counted = jnp.where(is_whole, position, 0.0)
        return packed, total + added, thinned + counted, squares + counted * counted

    position, *sums = walk
    first, stop = control.first // BLOCK_STEPS, -(-control.stop // BLOCK_STEPS)
    packed, *sums = lax.fori_loop(first, stop, body, (_pack(position, jnp.zeros_like(position)), *sums))
    return _unpack(packed)[0], *sums


def _walk_device(
    density_fn: DensityFn, shape: Shape, walk: Walk, steps: jax.Array, scale: jax.Array, seed: jax.Array
) -> Walk:
    """Take all steps of the chains of one device, tile after tile; called within `shard_map`."""
    control = _Control(seed, scale, walk.taken, walk.taken + steps)
    _, num_tiles, tile_chains = shape
    before = lax.axis_index(_AXIS) * (num_tiles * tile_chains)

    def tile(carry: tuple[jax.Array, ...]) -> _State:
        number, *state = carry
        chain = jnp.arange(tile_chains) + (before + number * tile_chains)
        return _walk_tile(density_fn, tuple(state), chain.astype(jnp.uint32), control)

    walked = lax.map(tile, (jnp.arange(num_tiles), *(each[0] for each in walk[:-1])))
    return Walk._make([*(each[None] for each in walked), control.stop])


class Program(NamedTuple):
    """A compiled walk; the number of steps, the scale and the seed are arguments, so one program serves all of them.

    Attributes:
        num_chains: number of chains.
        shape: chains over devices and tiles.
        sharding: sharding of the arrays of a `Walk`; its scalar is replicated.
        walk: takes (Walk, steps, scale, seed); returns the Walk after that many more steps.
    """

    num_chains: int
    shape: Shape
    sharding: NamedSharding
    walk: Callable[[Walk, np.int64, np.float32, np.uint32], Walk]

    def start(self, position: float) -> Walk:
        """Return all chains at one position, with no steps taken."""
        everywhere = NamedSharding(self.sharding.mesh, PartitionSpec())
        arrays = [np.full(self.shape, position, np.float32), *(np.zeros(self.shape) for _ in range(3))]
        return Walk._make([*jax.device_put(arrays, self.sharding), jax.device_put(np.int64(0), everywhere)])

    def advance(self, walk: Walk, num_steps: int, *, scale: float, seed: int) -> Walk:
        """Return the chains after more steps; splitting a run into several calls does not change a bit of its positions.

        Args:
            walk: the chains.
            num_steps: steps to take.
            scale: standard deviation of the proposal.
            seed: seed of the whole run, below 2**32.
        """
        # JAX scalars would each run a small program first, which takes longer than a short walk.
        return self.walk(walk, np.int64(num_steps), np.float32(scale), np.uint32(seed))

    def moments(self, walk: Walk) -> Moments:
        """Return the moments so far; the variance is NaN before the first whole block.

        The sums are float64 about 0, and squares of float32 are exact in float64. The variance loses about 1e-16 times the
        squared mean times the root of the number of blocks, less than float32 positions lose that far from 0.
        """
        taken, chains = int(walk.taken), self.num_chains
        mean, blocks = float(self.chains(walk.total).mean()) / taken, taken // BLOCK_STEPS
        if not blocks:
            return Moments(taken * chains, mean, float("nan"))
        thinned, square = (float(self.chains(each).mean()) / blocks for each in (walk.thinned, walk.squares))
        return Moments(taken * chains, mean, square - thinned**2)

    def chains(self, array: jax.Array) -> np.ndarray:
        """Return an array of a `Walk` as (chain,), without padding."""
        return np.asarray(array).ravel()[: self.num_chains]


def compile_walk(
    density_fn: DensityFn, num_chains: int, devices: Sequence[jax.Device], tile_chains: int = TILE_CHAINS
) -> Program:
    """Compile the walk of many chains. Requires `jax_enable_x64`.

    Args:
        density_fn: density of the target.
        num_chains: number of chains.
        devices: devices to spread chains over; few chains use fewer.
        tile_chains: largest tile; on an accelerator use the number of chains.
    """
    shape = lay_out(num_chains, len(devices), tile_chains)
    mesh = Mesh(np.array(devices[: shape[0]]), (_AXIS,))
    spread, whole = PartitionSpec(_AXIS), PartitionSpec()
    specs = Walk._make([spread, spread, spread, spread, whole])
    body = functools.partial(_walk_device, density_fn, shape)
    walk = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(specs, whole, whole, whole), out_specs=specs))
    program = Program(num_chains, shape, NamedSharding(mesh, spread), walk)
    # From shapes alone: making the arrays of all chains would count as compilation.
    position, sums = (
        jax.ShapeDtypeStruct(shape, dtype, sharding=program.sharding) for dtype in (np.float32, np.float64)
    )
    taken = jax.ShapeDtypeStruct((), np.int64, sharding=NamedSharding(mesh, whole))
    start = Walk._make([position, sums, sums, sums, taken])
    compiled = walk.lower(start, np.int64(0), np.float32(0), np.uint32(0)).compile()
    return program._replace(walk=compiled)
