"""Flat positions: every latent has its own coordinates, and gets them back."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.sampling.density.position import PositionLayout

NUM_ENTRIES, PADDED = 5, 8
SHAPES = {
    "weights": (3, 2), "bias": (), "offsets": (4,),
    "levels": (NUM_ENTRIES,), "loadings": (2, NUM_ENTRIES, 3), "scales": (2, NUM_ENTRIES),
}  # fmt: skip
LOCAL = {"levels": 0, "loadings": 1, "scales": 1}
SHARED_SIZE, LOCAL_SIZE = 6 + 1 + 4, 1 + 6 + 2


def layout(padded: int = PADDED, dtype: str = "float64", names: tuple[str, ...] = tuple(SHAPES)) -> PositionLayout:
    local = {k: v for k, v in LOCAL.items() if k in names}
    return PositionLayout({k: SHAPES[k] for k in names}, local, NUM_ENTRIES, padded, jnp.dtype(dtype))


def latents(names: tuple[str, ...] = tuple(SHAPES)) -> dict[str, jax.Array]:
    """Every coordinate another number, none of them 0."""
    values, start = {}, 1
    for name in names:
        size = math.prod(SHAPES[name])
        values[name] = jnp.arange(start, start + size, dtype=jnp.float64).reshape(SHAPES[name])
        start += size
    return values


@pytest.mark.parametrize("padded", [NUM_ENTRIES, PADDED])
@pytest.mark.parametrize(
    "names", [tuple(SHAPES), ("bias",), ("weights", "offsets"), ("levels",), ("loadings", "scales"), ("bias", "levels")]
)
def test_latents_come_back_from_their_coordinates(names: tuple[str, ...], padded: int) -> None:
    made, expected = layout(padded, names=names), latents(names)
    position = made.pack(expected)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), position) == jax.tree.map(
        lambda x: (x.shape, x.dtype), made.position_shapes
    )
    found = made.unpack(position, jnp.dtype("float64"))
    assert list(found) == sorted(names)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    # Each number lies in one place, and padding holds 0.
    values = np.concatenate([np.ravel(x) for x in jax.tree.leaves(position)])
    everything = np.concatenate([np.ravel(v) for v in expected.values()])
    np.testing.assert_array_equal(np.sort(values[values != 0]), np.sort(everything))


def test_a_part_without_coordinates_is_none() -> None:
    assert layout(names=("bias", "weights")).pack(latents()).local is None
    assert layout(names=("levels",)).pack(latents()).shared is None
    assert layout(names=("levels",)).position_shapes.shared is None


def test_an_entry_is_a_row_of_its_local_latents() -> None:
    """What is moved, masked or scaled by entries is all that belongs to them."""
    made, values = layout(), latents()
    position = made.pack(values)
    assert position.shared.shape == (SHARED_SIZE,)
    assert position.local.shape == (PADDED, LOCAL_SIZE)
    for entry in range(NUM_ENTRIES):
        expected = [np.take(np.asarray(values[k]), entry, axis=LOCAL[k]).ravel() for k in sorted(LOCAL)]
        np.testing.assert_array_equal(position.local[entry], np.concatenate(expected))
    for name in ("weights", "bias", "offsets"):
        np.testing.assert_array_equal(position.shared[made.shared[name]], np.ravel(values[name]))
    for name in LOCAL:
        assert made.local[name].stop - made.local[name].start == math.prod(SHAPES[name]) // NUM_ENTRIES


def test_the_mask_lets_entries_live_and_not_the_padding() -> None:
    mask = layout().mask
    assert mask.shared is None
    np.testing.assert_array_equal(mask.local, (np.arange(PADDED) < NUM_ENTRIES)[:, None])
    assert mask.local.dtype == jnp.float64
    assert layout(dtype="float32").mask.local.dtype == jnp.float32
    assert layout(padded=NUM_ENTRIES).mask == (None, None)
    assert layout(names=("bias", "weights")).mask == (None, None)


def test_padding_is_never_read() -> None:
    made = layout()
    position = made.pack(latents())
    spoilt = position._replace(local=position.local.at[NUM_ENTRIES:].set(jnp.nan))
    for name, value in made.unpack(spoilt, jnp.dtype("float64")).items():
        np.testing.assert_array_equal(value, latents()[name])


def test_positions_have_their_own_dtype_and_latents_the_one_asked_for() -> None:
    made = layout(dtype="float32")
    position = made.pack(latents())
    assert {x.dtype for x in jax.tree.leaves(position)} == {jnp.dtype("float32")}
    assert {x.dtype for x in made.unpack(position, jnp.dtype("float64")).values()} == {jnp.dtype("float64")}


def test_gradients_go_the_same_way() -> None:
    """Packing a gradient by latents is differentiating by the position."""
    made, weights = layout(), latents()

    def total(position):
        z = made.unpack(position, jnp.dtype("float64"))
        return sum(jnp.vdot(weights[k], z[k]) for k in z)

    found = jax.grad(total)(made.pack(jax.tree.map(jnp.zeros_like, weights)))
    jax.tree.map(np.testing.assert_array_equal, found, made.pack(weights))


def test_blocks_of_a_model_are_the_coordinates_of_one_entry(make_case, make_target) -> None:
    """Films of the matrix factorisation: each has its embedding and its bias; users are the entries."""
    target = make_target(make_case("matrix_factorization", width=3), 2, 5)
    made = target.position
    blocks = made.blocks()
    assert set(blocks) == {"films", "local"}
    films, local = blocks["films"], blocks["local"]
    (num_films, width) = made.shapes["film_embeddings"]
    assert (films.part, local.part) == ("shared", "local")
    assert films.indices.shape == (num_films, width + 1)
    assert sorted(films.indices.ravel()) == list(range(made.shared_size)), "each coordinate belongs to one film"
    np.testing.assert_array_equal(local.indices, np.arange(made.local_size)[None])
    # A position that holds the number of the film at each of its coordinates.
    number = jnp.arange(num_films, dtype=jnp.float64)
    values = {k: jnp.zeros(v) for k, v in made.shapes.items()}
    values |= {"film_embeddings": jnp.repeat(number[:, None], width, 1), "film_biases": number}
    shared = np.asarray(made.pack(values).shared)
    np.testing.assert_array_equal(shared[films.indices], np.repeat(np.arange(num_films)[:, None], width + 1, 1))


def test_blocks_along_a_later_axis() -> None:
    made = PositionLayout(
        {"a": (2, 3), "b": (3,), "c": (4,)}, {}, 1, 1, jnp.dtype("float64"), {"columns": {"a": 1, "b": 0}}
    )
    ((name, block),) = made.blocks().items()
    assert name == "columns"
    np.testing.assert_array_equal(block.indices, [[0, 3, 6], [1, 4, 7], [2, 5, 8]])


def test_a_model_without_blocks_or_entries_has_none() -> None:
    assert layout(names=("bias", "weights")).blocks() == {}
