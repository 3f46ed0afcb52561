"""The `compute` key: devices, mesh and arithmetic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["ComputeSettings", "MeshSettings"]


class MeshSettings(Settings):
    """The two axes over which a program is spread."""

    chain: int = Field(1, ge=1, le=65_536)
    """Devices over which the chains of one program are spread."""
    data: int = Field(1, ge=1, le=65_536)
    """Devices over which the rows of the data are spread."""


class ComputeSettings(Settings):
    """Devices, mesh and arithmetic."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """Device platform; `auto` takes JAX's own choice: TPU, else GPU, else CPU."""
    mesh: MeshSettings | Literal["auto"] = "auto"
    """Devices along `chain` and `data`. `auto` uses every device of the job, for rows if `sampling.mode` is
    `sharded`, for chains if it is `independent`. On a CPU a device is a core."""
    processes: int = Field(1, ge=1, le=65_536)
    """Processes that run one program together, each with its share of devices and rows. A launcher such as `srun`, or
    `bayesmesh sample --processes`, starts them."""
    sharding: Literal["named", "shard_map"] = "named"
    """How sums over devices are expressed: `named` leaves them to the compiler; `shard_map` states them, one sum over
    `data` per gradient. Both give the same draws up to rounding."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of latents, data and gradients. Log densities are summed in float64 in either case."""
    matmul_precision: Literal["highest", "high", "default"] = "highest"
    """Precision of float32 matrix products. Less than `highest` makes trajectories diverge on TPU and recent GPUs."""
    row_tile: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Rows that one device processes at a time; limits the memory of the likelihood."""
