"""Compare what a chain group needs with the memory and the disk space that there are, before it samples."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import jax
import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.sampling.density.mesh import DATA_AXIS
from bayesmesh.sampling.program.chain_group import Program


def check_memory(program: Program, available: int | None) -> None:
    """Refuse data, chains and draws that cannot fit; additional memory for the likelihood is not counted.

    Args:
        program: programs of the chain group.
        available: bytes that this process may use on the host; unknown if None.

    Raises:
        ConfigError: they do not fit; the message states the sizes in GiB.
    """
    target = program.target
    first, stop = program.rows_here
    rows = (stop - first) * sum(math.prod(f.shape) * np.dtype(f.dtype).itemsize for f in target.spec.fields.values())
    laid_out = _bytes(program.data_shapes.values())
    num_columns, position = program.mesh.shape[DATA_AXIS], target.position.position_shapes
    with_rows = _bytes(jax.tree.leaves(position.local))
    with_rows += target.dtype.itemsize * sum(map(math.prod, target.integrated.values()))
    draw = _bytes(jax.tree.leaves(position.shared)) + with_rows // num_columns
    on_device = {
        "data": laid_out // num_columns,
        "chains": _bytes(jax.tree.leaves(program.state_shapes)) // program.mesh.size,
        # At least one draw in the buffer of a call, and one being copied to the host.
        "draws": 2 * program.num_reported * draw,
    }
    # Rows as they are read, and rows laid out in the experiment's dtype.
    on_host = {"rows": rows, "laid out": on_device["data"] * len(program.devices_here)}
    device = program.mesh.devices.flat[0]
    if device.platform == "cpu":
        on_host |= {name: size * len(program.mesh.local_devices) for name, size in on_device.items()}
    else:
        _refuse_beyond((device.memory_stats() or {}).get("bytes_limit"), on_device, f"a device ({device.device_kind})")
    _refuse_beyond(available, on_host, "this machine or job")


def check_programs(program: Program, memory: Iterable[Mapping[str, int]], available: int | None) -> None:
    """Refuse compiled programs whose buffers cannot fit.

    Args:
        program: programs of the chain group, whose rows are on the devices.
        memory: bytes per device of each, from `audit.memory_of`.
        available: bytes that this process may still use on the host; unknown if None.

    Raises:
        ConfigError: they do not fit; the message states the sizes in GiB.
    """
    largest = max(memory, key=lambda each: each["temporaries"] + each["outputs"])
    sizes = {name: largest[name] for name in ("temporaries", "outputs")}
    device = program.mesh.devices.flat[0]
    if device.platform == "cpu":
        of_host = {name: size * len(program.mesh.local_devices) for name, size in sizes.items()}
        _refuse_beyond(available, of_host, "this machine or job")
    else:
        whole = {"arguments": largest["arguments"], **sizes}
        _refuse_beyond((device.memory_stats() or {}).get("bytes_limit"), whole, f"a device ({device.device_kind})")


def check_disk(num_bytes: int, folder: Path, *, is_certain: bool) -> str:
    """Return a warning if draws that are still to be made may not fit on the disk, else an empty string.

    Args:
        num_bytes: before compression, which makes draws little smaller.
        folder: an existing folder of the results.
        is_certain: whether all of these draws will be made.

    Raises:
        ConfigError: they need twice the free space, and `is_certain`.
    """
    free = shutil.disk_usage(folder).free
    if num_bytes <= free:
        return ""
    message = (
        f"the draws need {num_bytes / 2**30:.3g} GiB before compression, and {folder} has {free / 2**30:.3g} GiB free"
    )
    remedy = "lower sampling.draws or sampling.chains, use compute.dtype: float32, or free some space"
    if is_certain and num_bytes > 2 * free:
        raise ConfigError(message, remedy)
    return f"{message}; {remedy}"


def _bytes(shapes: Iterable[jax.ShapeDtypeStruct]) -> int:
    """Return the bytes of abstract arrays; a typed key counts as a few."""
    return sum(math.prod(s.shape) * getattr(s.dtype, "itemsize", 8) for s in shapes)


def _refuse_beyond(limit: int | None, sizes: dict[str, int], where: str) -> None:
    total = sum(sizes.values())
    if limit is not None and total > limit:
        parts = ", ".join(f"{name} {size / 2**30:.3g}" for name, size in sizes.items())
        raise ConfigError(
            f"needs at least {total / 2**30:.3g} GiB of memory ({parts} GiB), and {where} has {limit / 2**30:.3g} GiB",
            "use fewer rows (key 'data') or chains (key 'sampling.chains'), a smaller compute.row_tile, float32, or more devices"
            " or memory",
        )
