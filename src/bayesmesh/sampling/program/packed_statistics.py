"""The statistics of a kernel as one array: the loop of a program writes one row per iteration, whatever their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from bayesmesh.kernels.base import Kernel
from bayesmesh.sampling.checks.kernel import read_statistics


class Packed(NamedTuple):
    """Statistics of some iterations.

    Attributes:
        values: (iteration, chain, field) float64, fields in the order of their names; int32 and bool are exact.
        like: name -> empty array of its dtype.
    """

    values: Float[Array, "*batch iteration chain field"]
    like: dict[str, Shaped[Array, "*batch 0"]]


def pack(kernel: Kernel[Any, Any, Any, Any], info: Any, num_reported: int) -> Float[Array, "chain field"]:
    """Return the statistics of an Info as one row; a number that all chains share is repeated for each.

    Raises:
        ConfigError: see `read_statistics`.
    """
    fields = read_statistics(kernel, sorted(kernel.statistics), info, num_reported).values()
    return jnp.stack([jnp.broadcast_to(x, num_reported).astype(jnp.float64) for x in fields], axis=1)


def label(kernel: Kernel[Any, Any, Any, Any], info: Any, values: Float[Array, "iteration chain field"]) -> Packed:
    """Return rows of `pack` with the dtypes of the Info from which they were packed."""
    return Packed(values, {name: jnp.zeros(0, getattr(info, name).dtype) for name in kernel.statistics})


def unpack(values: np.ndarray, like: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    """Return name -> (..., iteration, chain) of the fields of `Packed`, on the host."""
    return {name: values[..., i].astype(like[name].dtype) for i, name in enumerate(sorted(like))}
