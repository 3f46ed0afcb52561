"""Random bits and numbers: known answers, and a battery of tests that a bad generator fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh_reproduction.streaming.variates import LARGEST, normal_pair, philox4x32, uniform

STEPS, CHAINS = 1 << 8, 1 << 10
LEAST = 1e-5
"""Smallest p-value that passes: about forty are computed, on fixed seeds."""


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


KNOWN = {
    "zeros": ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
"""Counter, key and answer, as published by the authors of Philox with their library Random123."""


@pytest.mark.parametrize("name", KNOWN)
def test_philox_gives_the_published_answers(name: str) -> None:
    counter, key, answer = (tuple(map(jnp.uint32, words)) for words in KNOWN[name])
    assert [int(word) for word in philox4x32(counter, key)] == [int(word) for word in answer]


def words_of(generator: Callable[..., tuple[jax.Array, ...]], seed: int) -> np.ndarray:
    """Return words (word, step, chain) for counters that differ in a few bits, as in the sampler."""
    step = jnp.arange(STEPS, dtype=jnp.uint32)[:, None] + jnp.zeros((1, CHAINS), jnp.uint32)
    chain = jnp.arange(CHAINS, dtype=jnp.uint32)[None] + jnp.zeros((STEPS, 1), jnp.uint32)
    zero = jnp.zeros_like(step)
    return np.stack(jax.jit(generator)((step, zero, chain, zero), (jnp.uint32(seed), jnp.uint32(0))))


def battery(words: np.ndarray) -> dict[str, float]:
    """Return a p-value for each test of bits (step, chain)."""
    found = {}
    flat, size = words.ravel(), words.size
    for name, byte in (("high byte", flat >> 24), ("low byte", flat & 255)):
        found[name] = stats.chisquare(np.bincount(byte, minlength=256)).pvalue
    counts = np.array([np.count_nonzero(flat >> bit & 1) for bit in range(32)])
    found["single bits"] = stats.chi2.sf((((counts - size / 2) ** 2) / (size / 4)).sum(), 32)
    number = words / 2.0**32 - 0.5
    for axis, along in enumerate(("steps", "chains")):
        for lag in (1, 2):
            head, tail = (
                np.take(number, np.arange(*r), axis) for r in ((words.shape[axis] - lag,), (lag, words.shape[axis]))
            )
            # Products of independent uniform numbers have variance 1/144.
            found[f"correlation along {along}, lag {lag}"] = _two_sided(12 * (head * tail).sum() / np.sqrt(head.size))
        first, second = (np.take(words, np.arange(start, words.shape[axis], 2), axis) for start in (0, 1))
        pairs = np.bincount(((first >> 28) * 16 + (second >> 28)).ravel(), minlength=256)
        found[f"pairs along {along}"] = stats.chisquare(pairs).pvalue
        # Differing bits of neighbours: binomial of 32 fair coins.
        differing = np.bincount(np.bitwise_count(first ^ second).ravel(), minlength=33)
        expected = stats.binom.pmf(np.arange(33), 32, 0.5) * first.size
        inner = slice(6, 27)
        observed = [differing[:6].sum(), *differing[inner], differing[27:].sum()]
        found[f"differing bits along {along}"] = stats.chisquare(
            observed, [expected[:6].sum(), *expected[inner], expected[27:].sum()]
        ).pvalue
    repeats = size - np.unique(flat).size
    rate = size**2 / 2.0**33
    found["repeated words"] = 2 * min(stats.poisson.cdf(repeats, rate), stats.poisson.sf(repeats - 1, rate))
    return found


def _two_sided(z: float) -> float:
    return float(2 * stats.norm.sf(abs(z)))


def test_bits_pass_the_battery() -> None:
    words = words_of(philox4x32, seed=1)
    for number in range(4):
        failed = {name: p for name, p in battery(words[number]).items() if p < LEAST}
        assert not failed, f"word {number}"
    # Words of one counter, and those of another key, are as independent as those of two counters.
    other = words_of(philox4x32, seed=2)
    for pair in ((words[0], words[1]), (words[2], words[3]), (words[0], other[0])):
        failed = {name: p for name, p in battery(np.concatenate(np.stack(pair, 1))).items() if p < LEAST}
        assert not failed


def weyl(counter: tuple[jax.Array, ...], key: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Equidistributed over all words, without any mixing."""
    return (counter[0] * jnp.uint32(0x9E3779B9) + counter[2] * jnp.uint32(0xBB67AE85) + key[0],)


def short(counter: tuple[jax.Array, ...], key: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Philox with too few rounds."""
    return philox4x32(counter, key, rounds=3)  # type: ignore[arg-type]


def congruential(counter: tuple[jax.Array, ...], key: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Two steps of a linear congruential generator from each counter."""
    word = counter[0] + counter[2] * jnp.uint32(STEPS) + key[0]
    for _ in range(2):
        word = word * jnp.uint32(1664525) + jnp.uint32(1013904223)
    return (word,)


@pytest.mark.parametrize("generator", [weyl, short, congruential], ids=lambda g: g.__name__)
def test_a_bad_generator_fails_the_battery(generator: Callable[..., tuple[jax.Array, ...]]) -> None:
    words = words_of(generator, seed=1)
    assert min(min(battery(word).values()) for word in words) < LEAST**2


def normals(seed: int) -> np.ndarray:
    radius, angle, *_ = words_of(philox4x32, seed)
    return np.stack(jax.jit(normal_pair)(radius, angle)).astype(np.float64)


def test_numbers_are_uniform_and_normal_and_pairs_are_independent() -> None:
    numbers = normals(3)
    for each in numbers:
        assert stats.kstest(each.ravel(), "norm").pvalue > LEAST
        tail = np.count_nonzero(np.abs(each) > 3.5)
        assert stats.binomtest(tail, each.size, 2 * stats.norm.sf(3.5)).pvalue > LEAST
    for a, b in (numbers, numbers**2 - 1, np.sign(numbers)):
        z = (a * b).sum() / np.sqrt((a**2).mean() * (b**2).mean() * a.size)
        assert _two_sided(z) > LEAST
    assert stats.kstest(np.asarray(uniform(words_of(philox4x32, 4)[2])).ravel(), "uniform").pvalue > LEAST


def test_normal_numbers_are_as_accurate_as_float32_and_exactly_symmetric() -> None:
    radius, angle, *_ = words_of(philox4x32, 5)
    # Extremes of both words, which no sample reaches.
    ends = np.array([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    radius, angle = (np.append(w.ravel(), e) for w, e in zip((radius, angle), np.meshgrid(ends, ends), strict=True))
    numbers = np.stack(jax.jit(normal_pair)(radius, angle))
    exact = np.sqrt(-2 * np.log((radius >> 1) * 2.0**-31 + 2.0**-32))
    turn = (angle >> 2) * 2.0**-30 * np.pi / 2
    for number, part, bit in zip(numbers, (np.cos(turn), np.sin(turn)), (0, 1), strict=True):
        wanted = exact * part * np.where(angle >> bit & 1, -1, 1)
        # A radius near 0 comes from a number near 1, where float32 is coarse.
        np.testing.assert_allclose(number, wanted, rtol=0, atol=2.5e-4)
        np.testing.assert_allclose(number[exact > 0.1], wanted[exact > 0.1], rtol=0, atol=2e-6)
    assert np.abs(numbers).max() <= LARGEST * (1 + 1e-6)
    flipped = np.stack(jax.jit(normal_pair)(radius, angle ^ np.uint32(3)))
    np.testing.assert_array_equal(flipped, -numbers)
