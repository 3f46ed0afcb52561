"""Numbers by stream and index: the hash of JAX, no number twice, and the right distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.random import threefry2x32_p

from bayesmesh.kernels.hamiltonian import random_numbers
from bayesmesh.kernels.hamiltonian.random_numbers import Stream, normal, uniform

KEYS = jax.random.split(jax.random.key(7), 3)
MANY = 100_000


def test_numbers_are_those_of_threefry() -> None:
    """As JAX computes it, which the published test vectors hold to."""
    index = jnp.arange(50, dtype=jnp.uint32)[None]
    words = jax.random.key_data(KEYS)
    wanted = threefry2x32_p.bind(
        *(jnp.broadcast_to(x, (3, 50)) for x in (words[:, :1], words[:, 1:], jnp.uint32(Stream.TREE), index))
    )
    found = random_numbers._hash(KEYS, Stream.TREE, index)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_no_stream_is_that_of_jax() -> None:
    """From one key, `jax.random` and the streams take different numbers."""
    index = jnp.arange(50, dtype=jnp.uint32)[None]
    words = {int(s): np.asarray(random_numbers._hash(KEYS, s, index)[0]).ravel().tolist() for s in Stream}
    of_jax = np.asarray(jax.vmap(lambda k: jax.random.key_data(jax.random.split(k, 50)))(KEYS))[..., 0].ravel().tolist()
    every = [number for numbers in (*words.values(), of_jax) for number in numbers]
    assert 0 not in words
    assert len(set(every)) == len(every)


def test_keys_are_folded_as_jax_folds_them() -> None:
    """Many keys by one number or by their own, and one key by many."""
    numbers = jnp.asarray([0, 5, 2**32 - 1], jnp.uint32)
    for found, wanted in (
        (random_numbers.fold(KEYS, numbers), jax.vmap(jax.random.fold_in)(KEYS, numbers)),
        (random_numbers.fold(KEYS, 3), jax.vmap(lambda k: jax.random.fold_in(k, 3))(KEYS)),
        (random_numbers.fold(KEYS[0], numbers), jax.vmap(lambda n: jax.random.fold_in(KEYS[0], n))(numbers)),
    ):
        np.testing.assert_array_equal(*map(jax.random.key_data, (found, wanted)))
    with pytest.raises(ValueError, match="threefry2x32"):
        random_numbers.fold(jax.random.split(jax.random.key(1, impl="rbg"), 3), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_are_standard_normal(dtype: str) -> None:
    """Of every chain, and without correlation between chains, neighbours and streams."""
    drawn = np.asarray(normal(KEYS, Stream.SHARED_MOMENTUM, (MANY,), dtype))
    assert drawn.dtype == dtype
    assert drawn.shape == (3, MANY)
    for numbers in drawn:
        assert scipy.stats.kstest(numbers, "norm").pvalue > 1e-3
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 4 / np.sqrt(MANY)
    other = np.asarray(normal(KEYS, Stream.LOCAL_MOMENTUM, (MANY,), dtype))
    assert np.abs(np.corrcoef([*drawn, *other]) - np.eye(6)).max() < 4.5 / np.sqrt(MANY)


def test_uniform_numbers_are_uniform() -> None:
    """Between 0 and 1, never one of them, with 52 bits."""
    drawn = uniform(KEYS, Stream.TREE, jnp.arange(MANY, dtype=jnp.uint32)[None])
    assert not drawn.weak_type
    drawn = np.asarray(drawn)
    assert drawn.dtype == np.float64
    for numbers in drawn:
        assert scipy.stats.kstest(numbers, "uniform").pvalue > 1e-3
    assert len(np.unique(drawn)) == drawn.size
    ends = np.asarray([0, 2**32 - 1], np.uint32)
    for dtype, bits in (("float64", 52), ("float32", 23)):
        least, most = np.asarray(random_numbers._to_uniform((jnp.asarray(ends), jnp.asarray(ends)), dtype), np.float64)
        assert least == 1 - most == 0.5 ** (bits + 1)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_longer_axes_change_no_number(shape: tuple[int, ...]) -> None:
    """Padding behind the last entry leaves the numbers of the others."""
    longer = (shape[0] + 2, *shape[1:])
    short, long = (normal(KEYS, Stream.LOCAL_MOMENTUM, s, jnp.float32) for s in (shape, longer))
    np.testing.assert_array_equal(np.asarray(short), np.asarray(long)[:, : shape[0]])
    assert len(np.unique(np.asarray(long))) == long.size


def test_numbers_of_a_chain_are_its_own() -> None:
    """They follow from its key: not from the chains beside it, nor from being traced."""
    index = jnp.asarray([[1, 2], [5, 6], [9, 10]], jnp.uint32)
    together = np.asarray(jax.jit(lambda k, i: uniform(k, Stream.TREE, i))(KEYS, index))
    alone = [np.asarray(uniform(KEYS[i : i + 1], Stream.TREE, index[i : i + 1]))[0] for i in range(3)]
    np.testing.assert_array_equal(together, alone)
