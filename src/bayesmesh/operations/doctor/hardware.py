"""doctor: cores, memory and accelerators as the operating system reports them, and what JAX makes of them.

JAX starts in a process of its own, because it may crash or hang.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Row, ask
from bayesmesh.store.machine import available_memory, usable_cores
from bayesmesh.store.slurm_job import job_id, job_memory
from bayesmesh.workflow.gpus import tpu_chips

LEAST_GIB = 3.0
"""Memory of one job with JAX and a small experiment."""

JAX_SECONDS = 20.0
MOST_ERROR = 1e-5
"""Relative error of a float32 product of 256 x 256 matrices; TF32 has about 1e-4, bfloat16 about 1e-3."""

_HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU."""


def check_machine(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Report host, cores, memory, GPUs and TPUs."""
    yield "host", socket.gethostname()
    yield "cores", f"{usable_cores()} usable of {os.cpu_count()}"
    yield describe_memory(environ)
    yield from describe_gpus(environ)
    if chips := tpu_chips():
        yield "TPU", f"{len(chips)} chips"


def describe_memory(environ: Mapping[str, str]) -> Row:
    """Report the smaller of the memory that is left here and that of a scheduler's job."""
    try:
        job = job_memory(environ)
    except ConfigError as error:
        return "memory", error.message, WARNS, error.remedy
    limits = {"": available_memory(), ", all of this job": job}
    known = [(limit, what) for what, limit in limits.items() if limit is not None]
    if not known:
        return "memory", "unknown"
    least, what = min(known)
    seen = f"{least / 2**30:.1f} GiB available{what}"
    if least < LEAST_GIB * 2**30:
        remedy = f"a job needs {LEAST_GIB:.0f} GiB: request more, or stop other programs on this machine"
        return "memory", seen, WARNS, remedy
    return "memory", seen


def describe_gpus(environ: Mapping[str, str]) -> Iterator[Row]:
    """Report the GPUs of the driver, and those that the environment hides."""
    num_files = len(list(Path("/dev").glob("nvidia[0-9]*")))
    found = ask(["nvidia-smi", "--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader"], environ)
    listed = [] if found is None or found.returncode else [line.strip() for line in found.stdout.splitlines() if line]
    yield from (("GPU", line) for line in listed)
    if num_files and not listed:
        yield (
            "GPU", f"{num_files} device files, but nvidia-smi does not answer", WARNS,
            "ask the site for a working NVIDIA driver; if only nvidia-smi is not installed, see the findings of JAX below",
        )  # fmt: skip
    elif not listed:
        yield "GPU", "none"
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        remedy = "it hides every GPU: unset it, or ask the scheduler for one (`gpu: 1` in the profile)"
        problem = (WARNS, remedy) if num_files and visible.strip() in _HIDDEN else ()
        yield "visible GPUs", f"CUDA_VISIBLE_DEVICES is {visible.strip() or 'empty'}", *problem


def check_jax(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Start JAX, list its devices and multiply two matrices."""
    variables = {**environ, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_COMPILATION_CACHE_DIR": ""}
    script = "from bayesmesh.operations.doctor import hardware; hardware.probe_jax()"
    said = ask([sys.executable, "-c", script], variables, JAX_SECONDS)
    if said is None:
        remedy = "a driver hangs or the file system is slow: try again, then try JAX_PLATFORMS=cpu"
        yield "platform", f"JAX did not start in {JAX_SECONDS:.0f} s", BLOCKS, remedy
    elif said.returncode:
        last = next((line for line in reversed(said.stderr.splitlines()) if line.strip()), "no message")
        yield "platform", f"JAX cannot start: {last[-300:]}", BLOCKS, _start_remedy(last, environ)
    else:
        yield from describe_jax(json.loads(said.stdout.splitlines()[-1]), environ)


def probe_jax() -> None:
    """Print one line of JSON: JAX's version and platform, the kind of each device, and the number of GPU device files.

    With them comes the largest relative error of a float32 matrix product.
    """
    import jax
    import numpy as np

    # The settings of `sampling.density.mesh.configure_jax`.
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    devices = jax.devices()
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 256, 256)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.max(np.abs(np.asarray(jax.numpy.dot(a, b)) - exact)) / np.max(np.abs(exact))
    seen = {
        "version": jax.__version__,
        "platform": devices[0].platform,
        "kinds": [d.device_kind for d in devices],
        "error": float(error),
        "gpu_files": len(list(Path("/dev").glob("nvidia[0-9]*"))),
    }
    print(json.dumps(seen))


def _start_remedy(message: str, environ: Mapping[str, str]) -> str:
    asked = environ.get("JAX_PLATFORMS") or environ.get("JAX_PLATFORM_NAME")
    if "No module named" in message:
        return "remake the environment from the locks with `make clean-env env`"
    if asked:
        return (
            f"JAX_PLATFORMS is {asked}: unset it, set it to cpu, or install that platform's packages with"
            " `make env ACCELERATOR=cuda` or `tpu`, on a machine that has the device"
        )
    return "check that the driver is recent enough (docs/how-to/installation.md); JAX_PLATFORMS=cpu avoids it"


def describe_jax(seen: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Row]:
    """Report the output of the probe: version, platform, unused GPUs, precision."""
    yield "version", seen["version"]
    if unused := _unused_gpus(seen, environ):
        yield "platform", f"cpu, although {unused}", WARNS, "install the packages for them: `make env ACCELERATOR=cuda`"
    else:
        kinds = seen["kinds"]
        named = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds)))
        yield "platform", f"{seen['platform']}: {named}"
    product = f"a float32 product is off by {seen['error']:.1g}"
    if seen["error"] <= MOST_ERROR:
        yield "precision", f"float64 sums; {product}"
    else:
        # Also for NaN.
        yield (
            "precision", product, WARNS,
            f"at most {MOST_ERROR:.0e} is expected at `compute.matmul_precision: highest`: unset XLA_FLAGS and"
            " JAX_DEFAULT_MATMUL_PRECISION, and see whether NVIDIA_TF32_OVERRIDE is set",
        )  # fmt: skip


def _unused_gpus(seen: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the GPUs that exist, or that the scheduler assigned, while JAX uses the CPU by default; empty if there are none."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    is_hidden = visible is not None and visible.strip() in _HIDDEN
    if seen["platform"] != "cpu" or environ.get("JAX_PLATFORMS") or is_hidden:
        return ""
    if visible and job_id(environ):
        return f"this job was given GPU {visible}"
    return f"there are {seen['gpu_files']} GPUs" if seen["gpu_files"] else ""
