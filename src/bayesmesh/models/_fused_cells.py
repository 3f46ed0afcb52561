"""Sums over the cells of a binary matrix in one pass on a Hopper GPU: no logit is written to memory.

A cell is an outcome w of 0 or 1 with the logit x = user . film. For each row, one pass computes the log likelihood,
the sum of  w x - log(1 + exp(x))  over its cells, and the gradients with respect to both sides, which are products with
the residuals  w - 1 / (1 + exp(-x)).

A thread block holds `_BLOCKS` blocks of 64 films and walks over blocks of 64 users. For each tile of 64 by 64 cells, the
tensor cores compute the logits and two products of the residuals; as in FlashAttention-3 (Shah et al. 2024), the logits
of the next tile are issued together with the products of this one. Each float32 number is split into two float16 numbers,
and the product of the two small parts is left out, so that logits have an error of 2^-21. Residuals have one part, with a
relative error of at most 2^-12: the relative error of gradients is about 4e-5. The gradient at a point is always the
same, so trajectories stay reversible and preserve volume, and the accept step uses the log likelihood alone: draws stay
exact.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Integer

MOST_FACTORS = 32
"""Largest number of columns of the two sides; more would not fit into one tensor-core product."""

_TILE = 64
"""Users and films of a tile: the rows of a warp group's product."""

_BLOCKS = 2
"""Blocks of films that a thread block holds; gradients with respect to users are written once for each thread block."""

_SPLITS = 9
"""Ranges of users; gradients with respect to films are written once for each. For MovieLens, one chain about fills the GPU."""

_AHEAD = 3
"""Blocks of users in shared memory: this one, the next, whose logits are being computed, and one that is being loaded."""

_WORD = 32
_LAYOUT = plgpu.Layout.WGMMA
_LOG2E = math.log2(math.e)


class _Tiles(NamedTuple):
    """How a matrix is divided: ranges of films, ranges of users, and blocks of users in each of these."""

    num_films: int
    num_users: int
    steps: int


def sum_cells(
    users: Float[Array, "rows k"], films: Float[Array, "films k"], words: Int[Array, "rows words"]
) -> tuple[Float[Array, " rows"], Float[Array, "rows k"], Float[Array, "films k"]]:
    """Return the log likelihood of each row, in nats, and the products of residuals with films and with users, float32.

    Args:
        users, films: the two sides, float32, of at most `MOST_FACTORS` columns and of magnitudes below 65,504.
        words: outcomes of the cells, from `pack_bits`.
    """
    (num_rows, num_factors), num_films = users.shape, len(films)
    of_films = _TILE * _BLOCKS
    blocks = -(-num_rows // _TILE)
    steps = -(-blocks // _SPLITS)
    tiles = _Tiles(-(-num_films // of_films), -(-blocks // steps), steps)
    rows, columns = tiles.num_users * steps * _TILE, tiles.num_films * of_films
    words = jnp.pad(words, ((0, rows - num_rows), (0, 0)))
    user_parts, film_parts = _in_two(users, rows), _in_two(_by_word(films, columns), columns)
    cells, by_user, by_film = _kernel(tiles)(user_parts, film_parts, words)
    # A padding film has logit 0 and was not watched: minus one bit.
    value = math.log(2) * (cells.sum(0)[:num_rows] + (columns - num_films))
    by_film = _by_bit(by_film.sum(0))[:num_films]
    return value, by_user.sum(0)[:num_rows, :num_factors], by_film[:, :num_factors]


def _in_two(side: Float[Array, "n k"], length: int) -> Float[Array, "2 length factors"]:
    """Return the large and the small float16 part of a side, padded with zeros after its rows and columns."""
    side = jnp.pad(side, ((0, length - len(side)), (0, MOST_FACTORS - side.shape[1])))
    # A conversion and back might be left out by the compiler.
    large = lax.reduce_precision(side, exponent_bits=5, mantissa_bits=10)
    return jnp.stack([large, side - large]).astype(jnp.float16)


def pack_bits(watched: Integer[Array, "rows films"]) -> Int[Array, "rows words"]:
    """Return the outcomes of cells, 0 or 1, as words of 32 bits, with zeros for padding films.

    The films of neighbouring bits in a word are as far apart as there are words.
    """
    num_films = watched.shape[1]
    columns = -(-num_films // (_TILE * _BLOCKS)) * _TILE * _BLOCKS
    padded, count = jnp.pad(watched, ((0, 0), (0, columns - num_films))), columns // _WORD
    parts = [padded[:, k * count : (k + 1) * count].astype(jnp.int32) << k for k in range(_WORD)]
    return functools.reduce(operator.or_, parts)


def _by_word(films: Float[Array, "films k"], length: int) -> Float[Array, "length k"]:
    """Return films in the order in which their bits lie in words, with zeros for padding."""
    padded = jnp.pad(films, ((0, length - len(films)), (0, 0)))
    return padded.reshape(_WORD, -1, films.shape[1]).swapaxes(0, 1).reshape(padded.shape)


def _by_bit(films: Float[Array, "films k"]) -> Float[Array, "films k"]:
    """Undo `_by_word`."""
    return films.reshape(-1, _WORD, films.shape[1]).swapaxes(0, 1).reshape(films.shape)


def _kernel(tiles: _Tiles) -> Callable[..., tuple[Array, Array, Array]]:
    """Return the function that sums each range of films and of users, given both sides, each from `_in_two`, and the words."""
    rows, columns = tiles.num_users * tiles.steps * _TILE, tiles.num_films * _TILE * _BLOCKS
    shapes = [(tiles.num_films, rows), (tiles.num_films, rows, MOST_FACTORS), (tiles.num_users, columns, MOST_FACTORS)]
    run: Callable[..., tuple[Array, Array, Array]] = plgpu.kernel(
        functools.partial(_sum_range, tiles.steps),
        out_type=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        grid=(tiles.num_films, tiles.num_users),
        grid_names=("films", "users"),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )
    return run


def _sum_range(steps: int, *refs: Any) -> None:
    """Sum the cells of a range of users and of a range of films, which stay in shared memory."""
    # Their declared base class has a method without a body.
    lies = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(64))  # type: ignore[abstract]
    pl.run_scoped(
        lambda *scratch: _Walk(steps, *refs, *scratch).run(),
        plgpu.SMEM((_AHEAD, 2, _TILE, MOST_FACTORS), jnp.float16, transforms=lies),
        plgpu.SMEM((_BLOCKS, 2, _TILE, MOST_FACTORS), jnp.float16, transforms=lies),
        plgpu.SMEM((_TILE, _TILE), jnp.float16, transforms=lies),
        plgpu.Barrier(num_arrivals=2, num_barriers=_AHEAD),
        plgpu.Barrier(num_arrivals=2 * _BLOCKS),
    )


class _Walk:
    """A walk over the blocks of users of a range.

    Args:
        steps: blocks of users.
        users, films: both parts of the two sides, (2, n, MOST_FACTORS) in global memory.
        words: (row, word) in global memory.
        cells, by_user, by_film: the sums, as `_kernel` shapes them there.
        own, other: blocks of users and of films in shared memory.
        residuals: residuals of a tile, in shared memory.
        own_there, other_there: barriers that signal the arrival of blocks.
    """

    def __init__(
        self, steps: int, users: Any, films: Any, words: Any, cells: Any, by_user: Any, by_film: Any,
        own: Any, other: Any, residuals: Any, own_there: Any, other_there: Any,
    ) -> None:  # fmt: skip
        self.steps, self.users, self.films, self.words = steps, users, films, words
        self.cells, self.by_user, self.by_film = cells, by_user, by_film
        self.own, self.other, self.residuals = own, other, residuals
        self.own_there, self.other_there = own_there, other_there
        self.film_range, self.user_range = lax.axis_index("films"), lax.axis_index("users")

    def run(self) -> None:
        """Walk, and write the sums."""
        for block in range(_BLOCKS):
            for part in range(2):
                films = self.films.at[part, self.films_of(block)]
                plgpu.copy_gmem_to_smem(films, self.other.at[block, part], self.other_there)
        for step in range(min(_AHEAD, self.steps)):
            self.fetch(step, step)
        plgpu.barrier_wait(self.other_there)
        plgpu.barrier_wait(self.own_there.at[0])
        logits = pl.run_scoped(self.first_logits, plgpu.ACC((_TILE, _TILE), jnp.float32))
        begun = ((_zeros(_TILE, MOST_FACTORS),) * _BLOCKS, logits)
        sums, _ = lax.fori_loop(jnp.int32(0), jnp.int32(self.steps), self.advance, begun)
        for block in range(_BLOCKS):
            self.by_film[self.user_range, self.films_of(block)] = sums[block]

    def films_of(self, block: int) -> Any:
        return pl.ds((self.film_range * _BLOCKS + block) * _TILE, _TILE)

    def users_of(self, step: Any) -> Any:
        return pl.ds((self.user_range * self.steps + step) * _TILE, _TILE)

    def fetch(self, step: Any, slot: Any) -> None:
        for part in range(2):
            users = self.users.at[part, self.users_of(step)]
            plgpu.copy_gmem_to_smem(users, self.own.at[slot, part], self.own_there.at[slot])

    def ask_logits(self, into: Any, slot: Any, block: int) -> None:
        for mine, its in ((0, 0), (0, 1), (1, 0)):
            plgpu.wgmma(into, self.own.at[slot, mine], self.other.at[block, its].transpose((1, 0)))

    def first_logits(self, into: Any) -> Array:
        self.ask_logits(into, 0, 0)
        return into[...]

    def advance(self, step: Any, carry: tuple[tuple[Array, ...], Array]) -> tuple[tuple[Array, ...], Array]:
        """Process a block of users: sums by film and logits of its first tile -> the new sums, and the next block's logits."""
        (sums, logits), ahead = carry, step + (_AHEAD - 1)
        slot, later = (lax.rem(at, jnp.int32(_AHEAD)) for at in (step, step + 1))
        value, mine = _zeros(_TILE), _zeros(_TILE, MOST_FACTORS)
        for block in range(_BLOCKS):
            residual, bits = cell_terms(logits, self.outcomes(step, block))
            value = value + jnp.sum(bits, axis=1)
            rounded = residual.astype(jnp.float16)
            self.residuals[...] = rounded
            plgpu.commit_smem()
            is_last = block == _BLOCKS - 1
            if block == 0:
                # All warps have finished the products of the previous step, whose slot is free.
                pl.when((step > 0) & (ahead < self.steps))(lambda: self.fetch(ahead, lax.rem(ahead, jnp.int32(_AHEAD))))
            if is_last:
                pl.when(step + 1 < self.steps)(lambda: plgpu.barrier_wait(self.own_there.at[later]))
            begun = tuple(plgpu.ACC.init(x) for x in (mine, sums[block], _zeros(_TILE, _TILE)))
            following = (later, 0) if is_last else (slot, block + 1)
            ask = functools.partial(self.ask, slot, block, rounded, following)
            mine, its, logits = pl.run_state(ask)(begun)
            sums = (*sums[:block], its, *sums[block + 1 :])
        self.by_user[self.film_range, self.users_of(step)] = mine
        self.cells[self.film_range, self.users_of(step)] = value
        return sums, logits

    def ask(
        self, slot: Any, block: int, residual: Array, following: tuple[Any, int], into: tuple[Any, Any, Any]
    ) -> None:
        """Issue both products of a tile's residuals, and the logits of the following tile."""
        by_user, by_film, logits = into
        self.ask_logits(logits, *following)
        for part in range(2):
            plgpu.wgmma(by_user, residual, self.other.at[block, part])
            plgpu.wgmma(by_film, self.residuals.transpose((1, 0)), self.own.at[slot, part])

    def outcomes(self, step: Any, block: int) -> Float[Array, "m n"]:
        """Return the outcomes of a tile's cells: the bits of two words for each user."""
        shape, first = (_TILE, _TILE), (self.film_range * _BLOCKS + block) * (_TILE // _WORD)
        column = plgpu.broadcasted_iota(jnp.int32, shape, 1, layout=_LAYOUT)
        pair = [
            plgpu.load(self.words.at[self.users_of(step), first + k], layout=_LAYOUT.reduce(1), optimized=False)
            for k in range(_TILE // _WORD)
        ]
        wide = [lax.broadcast_in_dim(each, shape, [0]) for each in pair]
        word: Array = jnp.where(column < _WORD, wide[0], wide[1])
        bit = (word >> (column & (_WORD - 1))) & 1
        return jnp.where(bit != 0, 1.0, 0.0).astype(jnp.float32)


def cell_terms(
    logits: Float[Array, "m n"], watched: Float[Array, "m n"]
) -> tuple[Float[Array, "m n"], Float[Array, "m n"]]:
    """Return the residuals of cells, and their log likelihoods in bits, with three special-function instructions."""
    scaled = logits * _LOG2E
    softplus = jnp.maximum(-scaled, 0.0) + jnp.log2(1.0 + jnp.exp2(-jnp.abs(scaled)))
    return watched - jnp.exp2(-softplus), (watched - 1.0) * scaled - softplus


def _zeros(*shape: int) -> Array:
    made: Array = plgpu.layout_cast(jnp.zeros(shape, jnp.float32), _LAYOUT if len(shape) > 1 else _LAYOUT.reduce(1))
    return made
