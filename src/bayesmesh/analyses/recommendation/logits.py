"""Read rows and draws of chosen users, in chunks of draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from bayesmesh.analyses.recommendation.suitability import check_recommendation
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import StoreError
from bayesmesh.models.base import Model
from bayesmesh.store.posterior_reader import Posterior

__all__ = ["check_inputs", "iterate_chunks", "read_users", "split_latents", "user_latents"]


def check_inputs(model: Model, spec: DataSpec, posterior: Posterior, shards: Shards) -> None:
    """Check that films can be ranked for users with these draws, without computing anything.

    Raises:
        ConfigError: see `check_recommendation`.
        StoreError: the posterior has another number of users than the data.
    """
    arrays = {latent: posterior.array("posterior", latent) for latent in posterior.latents}
    latents = {
        latent: jax.ShapeDtypeStruct(array.shape[2:], spec.dtype if array.dtype.kind == "f" else array.dtype)
        for latent, array in arrays.items()
    }
    check_recommendation(model, latents, shards)
    for latent, axis in model.local_latents.items():
        if latents[latent].shape[axis] != shards.num_rows:
            raise StoreError(
                f"{posterior.path}: '{latent}' has {latents[latent].shape[axis]} users, the data {shards.num_rows}",
                "run the sample stage again",
            )


def read_users(shards: Shards, users: np.ndarray, block_rows: int = 8192) -> dict[str, np.ndarray]:
    """Return the training rows of some users: name -> (users, ...), in the order of `users`.

    Reads at most `block_rows` rows at a time, and only ranges that contain a requested user.
    """
    parts: dict[str, np.ndarray] = {}
    for start in range(0, shards.num_rows, block_rows):
        inside = np.flatnonzero((users >= start) & (users < start + block_rows))
        if not len(inside):
            continue
        first, last = int(users[inside].min()), int(users[inside].max())
        for name, values in shards.read_rows(first, last + 1).items():
            if name not in parts:
                parts[name] = np.empty((len(users), *values.shape[1:]), values.dtype)
            parts[name][inside] = values[users[inside] - first]
    return parts


def user_latents(model: Model, block: Mapping[str, np.ndarray], users: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """Return a block of draws, name -> (draws, ...), with local latents of `users` only and floats in `dtype`."""
    chosen = {}
    for name, values in block.items():
        if name in model.local_latents:
            axis = model.local_latents[name] % (values.ndim - 1) + 1
            values = np.take(values, users, axis=axis)
        chosen[name] = values.astype(dtype, copy=False) if values.dtype.kind == "f" else values
    return chosen


def split_latents(model: Model, block: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return local latents, name -> (users, draws, ...), and the others, name -> (draws, ...)."""
    local, shared = {}, {}
    for name, values in block.items():
        if name in model.local_latents:
            local[name] = np.moveaxis(values, model.local_latents[name] % (values.ndim - 1) + 1, 0)
        else:
            shared[name] = values
    return local, shared


def iterate_chunks(
    model: Model, posterior: Posterior, users: np.ndarray, dtype: str, max_draws: int, block_bytes: int
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """Yield all draws in chunks of one size: position of the first draw, draws that count, latents of `users`.

    Padding repeats the last draw, which keeps one shape and so one compilation.
    """
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    per_draw = sum(math.prod(array.shape[2:]) * array.dtype.itemsize for array in arrays.values())
    total = posterior.num_chains * posterior.num_draws
    size = max(1, min(max_draws, total, block_bytes // max(1, per_draw)))
    done = 0
    for block in posterior.blocks(block_bytes=block_bytes):
        chosen = user_latents(model, block, users, dtype)
        length = len(next(iter(chosen.values())))
        for start in range(0, length, size):
            count = min(size, length - start)
            index = start + np.minimum(np.arange(size), count - 1)
            yield done, count, {name: values[index] for name, values in chosen.items()}
            done += count
