"""Starting points of chains: draws around the origin or from the prior, or points from a file or the model, with noise."""

from __future__ import annotations

import functools
import itertools
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, UInt32

from bayesmesh.config.blocks import InitialSettings
from bayesmesh.config.data_spec import ReadBlocks
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import over_chains
from bayesmesh.sampling.density.log_density import Target

MOST_BYTES = 2**30
"""Bytes of a file of points, once it is decompressed."""

_UNIFORM = functools.partial(jax.random.uniform, minval=-2, maxval=2)
_NOISE: Mapping[str, Callable[..., jax.Array]] = {
    "auto": _UNIFORM,
    "uniform": _UNIFORM,
    "laplace": _UNIFORM,
    "zero": jax.random.normal,
    "file": jax.random.normal,
    "model": jax.random.normal,
}
"""Method of starting in unconstrained space -> sampler; the width of `uniform` is Stan's. Other methods draw from the prior."""

MIRRORED = ("auto", "uniform")
"""Methods in which an odd-numbered chain starts at the reflection of the start of the chain before it, and the second pair of
four starts at the first pair's starts with components reversed. Independent starts all find the same one of two equal modes more
often: with four chains, one time in eight."""

_MOST_COMPONENTS = 10
"""Longest axis whose entries may be exchangeable components, such as topics or the states of a hidden Markov model."""

_WIDEST_PRIOR, _NUM_WIDTHS = 3.0, 8
"""Standard deviation in unconstrained space up to which `auto` starts from the prior, and draws from which it is estimated."""

_NUM_CENTERED, _MOST_CENTERED = 66, 2**22
"""Prior draws from which the center of reflections is estimated, and the most coordinates of all of them. A center that is off by a
third of a standard deviation, as the mean of eight draws is, puts most chains on one side of the prior."""

MOST_ATTEMPTS = 100
"""Starts that a chain tries; Stan's number. In the second half of them, `auto` draws even from a wide prior."""

_NEAR = 1e-3
"""Relative distance within which values in the support must return from unconstrained space."""


def place_starts(
    method: str,
    target: Target,
    keys: Key[Array, " chain"],
    attempt: UInt32[Array, " chain"],
    spread: Any,
    center: Position | None,
    numbers: UInt32[Array, " chain"],
) -> Position:
    """Return the positions (chain, ...) at which chains start, before they climb.

    Args:
        method: `sampling.initial.method`.
        target: the log density.
        keys: one per chain, equal for chains that start together: see `num_together`.
        attempt: number of the start, from 0.
        spread: factor that multiplies the draws.
        center: (chain, ...) points around which they lie; the origin if None.
        numbers: absolute numbers of the chains, which determine whose starts are reflected or reversed.
    """
    drawn = _sample_starts(method, target, keys, attempt, numbers % 2 == 1)
    if num_together(method, target) == 4:
        drawn = jax.vmap(functools.partial(_reverse_components, target))(drawn, numbers // 2 % 2 == 1)
    drawn = jax.tree.map(lambda x: (spread * x).astype(x.dtype), drawn)
    return drawn if center is None else jax.tree.map(lambda c, x: c.astype(x.dtype) + x, center, drawn)


def num_together(method: str, target: Target) -> int:
    """Return how many chains, from a multiple of this number on, share one key: 4, 2 or 1."""
    return (4 if component_axes(target) else 2) if method in MIRRORED else 1


def component_axes(target: Target) -> dict[str, tuple[int, ...]]:
    """Return latent -> axes whose entries may be components: short ones with the length of an axis of another latent."""
    shapes = {name: shape.shape for name, shape in jax.eval_shape(target.prior.sample, seed=jax.random.key(0)).items()}
    local = target.model.local_latents
    lengths = {name: {n for i, n in enumerate(shape) if i != local.get(name)} for name, shape in shapes.items()}
    counts = Counter(itertools.chain.from_iterable(lengths.values()))
    shared = {n for n, count in counts.items() if count > 1 and 1 < n <= _MOST_COMPONENTS}
    axes = {
        name: tuple(i for i, n in enumerate(shape) if n in shared and i != local.get(name))
        for name, shape in shapes.items()
    }
    return {name: found for name, found in axes.items() if found}


def _reverse_components(target: Target, start: Position, is_reversed: Bool[Array, ""]) -> Position:
    """Return one chain's start, with components reversed in the latents that allow it if `is_reversed`."""
    # In float64 like the prior, whose map would refuse another dtype.
    z = target.position.unpack(start, jnp.dtype("float64"))
    latents = dict(target.bijector.forward(z))
    turned = {name: jnp.flip(latents[name], axes) for name, axes in component_axes(target).items()}
    found = dict(target.bijector.inverse({**latents, **turned}))
    # Ordered components cannot be reversed: their coordinates would not be finite.
    takes = {name: is_reversed & jnp.isfinite(found[name]).all() for name in turned}
    return target.position.pack({k: jnp.where(takes[k], found[k], v) if k in takes else v for k, v in z.items()})


def _sample_starts(
    method: str,
    target: Target,
    keys: Key[Array, " chain"],
    attempt: UInt32[Array, " chain"],
    is_reflected: Bool[Array, " chain"],
) -> Position:
    if (draw := _NOISE.get(method)) is None:
        return jax.vmap(target.sample_prior)(keys)
    noise = jax.vmap(functools.partial(_sample_noise, draw, target))(keys)
    if method in MIRRORED:
        noise = _reflect(noise, jax.tree.map(lambda x: jnp.zeros_like(x[0]), noise), is_reflected)
    if method != "auto":
        return noise
    # The same for all chains of all runs. They are drawn together with the starts, so that the prior is compiled once.
    num_coordinates = sum(math.prod(shape) for shape in target.position.shapes.values())
    num_others = max(_NUM_WIDTHS, min(_NUM_CENTERED, _MOST_CENTERED // max(1, num_coordinates)))
    every = jax.vmap(target.sample_prior)(jnp.concatenate([keys, jax.random.split(jax.random.key(0), num_others)]))
    prior, others = jax.tree.map(lambda x: x[: len(keys)], every), jax.tree.map(lambda x: x[len(keys) :], every)
    widths = [x[:_NUM_WIDTHS].std(axis=0) for x in jax.tree.leaves(others)]
    is_narrow = jnp.stack([(width <= _WIDEST_PRIOR).all() for width in widths]).all()
    prior = _reflect(prior, jax.tree.map(_center, others), is_reflected)
    # If the density is 0 everywhere around the origin, a wide prior may still reach the data.
    takes_prior = is_narrow | (attempt >= MOST_ATTEMPTS // 2)
    return jax.tree.map(lambda x, y: jnp.where(over_chains(takes_prior, y), x, y), prior, noise)


def _center(draws: Float[Array, "draw ..."]) -> Float[Array, "..."]:
    """Return the median of the means of three thirds of the draws, which one far draw does not move; it needs no sort to compile."""
    one, other, third = (jnp.nanmean(part, axis=0) for part in jnp.array_split(draws, 3))
    return jnp.maximum(jnp.minimum(one, other), jnp.minimum(jnp.maximum(one, other), third))


def _reflect(starts: Position, center: Position, is_reflected: Bool[Array, " chain"]) -> Position:
    """Return the starts (chain, ...), some of them reflected about a center."""
    return jax.tree.map(lambda x, c: jnp.where(over_chains(is_reflected, x), 2 * c[None] - x, x), starts, center)


def _sample_noise(draw: Callable[..., jax.Array], target: Target, key: Key[Array, ""]) -> Position:
    """Return noise for one chain's coordinates in unconstrained space; padding gets none, because it must not move."""
    layout = target.position
    sizes = [math.prod(shape) for shape in layout.shapes.values()]
    # One call, because every random number generator is a loop in the compiled program.
    parts = jnp.split(draw(key, (sum(sizes),), target.dtype), list(itertools.accumulate(sizes))[:-1])
    return layout.pack({k: x.reshape(s) for x, (k, s) in zip(parts, layout.shapes.items(), strict=True)})


# -- points from a file or the model ------------------------------------------------------------------------------------------


def find_points(
    where: str, initial: InitialSettings, target: Target, read_blocks: ReadBlocks | None
) -> Position | None:
    """Return the points around which chains start, in unconstrained space, (point, ...); None if the method has none.

    Args:
        where: the experiment, for messages.
        initial: where the chains start.
        target: the log density.
        read_blocks: reads the rows, for a model that starts from the data.

    Raises:
        ConfigError: the file cannot be read, or the model declares no point; or a latent is missing, has a wrong shape, is not
            finite, or is outside its support. The message names key, file and latent.
    """
    if initial.method == "file":
        key, path = f"{where}: key 'sampling.initial.file': {initial.file}", Path(str(initial.file))
        return _to_positions(key, _read(key, path), target)
    if initial.method != "model":
        return None
    key = f"{where}: key 'sampling.initial.method': model '{type(target.model).__name__}'"
    found = None if read_blocks is None else target.model.starting_point(read_blocks)
    if found is None:
        raise ConfigError(
            f"{key} declares no starting point", "define `starting_point` in it, or use\n    sampling:\n      initial: {method: auto}"
        )  # fmt: skip
    return _to_positions(key, found, target)


def choose_points(points: Position | None, first_chain: int, num_chains: int) -> Position | None:
    """Return one point for each chain, in turn, (chain, ...).

    Args:
        points: from `find_points`.
        first_chain: absolute number of the group's first chain.
        num_chains: chains of the group.
    """
    return jax.tree.map(lambda x: x[(first_chain + np.arange(num_chains)) % len(x)], points)


def _read(key: str, path: Path) -> dict[str, np.ndarray]:
    """Return latent -> values from a JSON or NPZ file."""
    remedy = 'write latents as JSON, such as {"mean": [0.5, 1.0], "noise": 2.0}, or as NPZ by np.savez(path, mean=..., noise=...)'
    if path.suffix not in (".json", ".npz"):
        raise ConfigError(f"{key}: the ending is neither .json nor .npz", remedy)
    try:
        if path.suffix == ".json":
            num_bytes = path.stat().st_size
        else:
            with zipfile.ZipFile(path) as listed:
                num_bytes = sum(member.file_size for member in listed.infolist())
        if num_bytes > MOST_BYTES:
            raise ConfigError(f"{key}: holds {num_bytes:,} bytes, more than {MOST_BYTES:,}", "write fewer points")
        if path.suffix == ".json":
            entries = json.loads(path.read_bytes())
            found = {name: np.asarray(value, np.float64) for name, value in entries.items()}
        else:
            with np.load(path, allow_pickle=False) as archive:
                found = {name: np.asarray(archive[name], np.float64) for name in archive.files}
    except OSError as error:
        raise ConfigError(f"{key}: cannot be read: {error.strerror or error}", remedy) from error
    except (ValueError, TypeError, AttributeError, LookupError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"{key}: expected latent -> numbers: {said}", remedy) from error
    return found


def to_positions(latents: Mapping[str, np.ndarray], target: Target) -> Position:
    """Return points in unconstrained space, (point, ...), of latents (point, ...); not finite where one lies on its bound."""

    def to_unconstrained(one: dict[str, jax.Array]) -> Position:
        return target.position.pack(dict(target.bijector.inverse(one)))

    sampled = {name: value for name, value in latents.items() if name not in target.integrated}
    every = {name: jnp.asarray(value, jnp.float64) for name, value in sampled.items()}
    return jax.tree.map(np.asarray, jax.vmap(to_unconstrained)(every))


def _to_positions(key: str, latents: Mapping[str, Any], target: Target) -> Position:
    shapes = jax.eval_shape(lambda: target.prior.sample(seed=jax.random.key(0)))
    for name in latents:
        # Latents that are integrated out need no start.
        if name not in shapes and name not in target.integrated:
            raise ConfigError(f"{key}: '{name}' is no latent of the model", suggest(name, shapes))
    values = {name: _values(key, name, latents.get(name), of.shape) for name, of in shapes.items()}
    counts = {name: len(value) for name, value in values.items() if len(value) > 1}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ConfigError(f"{key}: latents have unequal numbers of points: {listed}", "write one value, or one for each point")  # fmt: skip
    count = max(counts.values(), default=1)
    every = {name: jnp.asarray(np.broadcast_to(value, (count, *value.shape[1:]))) for name, value in values.items()}

    def to_unconstrained(one: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return dict(target.bijector.inverse(one))

    z = jax.vmap(to_unconstrained)(every)
    # Traced separately, because a map caches the input of its inverse.
    back = jax.vmap(lambda z: dict(target.bijector.forward(z)))(jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, z)))
    for name, value in every.items():
        if not np.allclose(back[name], value, rtol=_NEAR, atol=_NEAR * 1e-3):
            raise ConfigError(f"{key}: latent '{name}' is outside of its support", "write values at which the prior has a density")  # fmt: skip
    positions: Position = jax.vmap(target.position.pack)(z)
    return jax.tree.map(np.asarray, positions)


def _values(key: str, name: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a latent, (point, *shape)."""
    if given is None:
        raise ConfigError(f"{key}: has no latent '{name}'", f"add it, with shape {shape}, or (points, *{shape})")
    value = np.asarray(given, np.float64)
    if value.shape == shape:
        value = value[None]
    if value.shape[1:] != shape or not len(value):
        raise ConfigError(f"{key}: latent '{name}' has shape {value.shape}", f"give it shape {shape}, or (points, *{shape})")  # fmt: skip
    if not np.isfinite(value).all():
        raise ConfigError(f"{key}: latent '{name}' is not finite", "write numbers")
    return value
