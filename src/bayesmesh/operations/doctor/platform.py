"""doctor: start JAX in a separate process, because it may crash, and check its devices and precision."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Finding, ask
from bayesmesh.operations.doctor.probe import Probed
from bayesmesh.running.slurm.variables import job_id

__all__ = ["check"]

GROUP = "JAX"
TIMEOUT_SECONDS = 20.0
MOST_ERROR = 1e-5
"""Relative error of a float32 product of 256 x 256 matrices; TF32 has about 1e-4, bfloat16 about 1e-3."""


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Start JAX, list its devices and multiply two matrices."""
    said = ask([sys.executable, "-m", "bayesmesh.operations.doctor.probe"], _of_one_process(environ), TIMEOUT_SECONDS)
    if said is None:
        return [
            Finding(
                GROUP, "platform", f"JAX did not start in {TIMEOUT_SECONDS:.0f} s", BLOCKS,
                "a driver hangs or the file system is slow: try again, then try JAX_PLATFORMS=cpu",
            )
        ]  # fmt: skip
    if said.returncode:
        return [_failure(said.stderr, environ)]
    return judge(json.loads(said.stdout.splitlines()[-1]), environ)


def _of_one_process(environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_COMPILATION_CACHE_DIR": ""}


def _failure(stderr: str, environ: Mapping[str, str]) -> Finding:
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "no message")
    asked = environ.get("JAX_PLATFORMS") or environ.get("JAX_PLATFORM_NAME")
    if "No module named" in last:
        remedy = "remake the environment from the locks with `make clean-env env`"
    elif asked:
        remedy = (
            f"JAX_PLATFORMS is {asked}: unset it, set it to cpu, or install that platform's packages with"
            " `make env ACCELERATOR=cuda` or `tpu`, on a machine that has the device"
        )
    else:
        remedy = "check that the driver is recent enough (docs/guide/installation.md); JAX_PLATFORMS=cpu avoids it"
    return Finding(GROUP, "platform", f"JAX cannot start: {last[-300:]}", BLOCKS, remedy)


def judge(seen: Probed, environ: Mapping[str, str]) -> list[Finding]:
    """Return findings from the output of the probe.

    Args:
        seen: JAX's version, `platform`, `kinds` (one name per device), `error` of a matrix product, `gpu_files`.
        environ: environment variables.
    """
    kinds = seen["kinds"]
    named = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in sorted(set(kinds)))
    found = [Finding(GROUP, "version", seen["version"])]
    found.append(_forgotten(seen, environ) or Finding(GROUP, "platform", f"{seen['platform']}: {named}"))
    error = seen["error"]
    # `not <=` also catches NaN.
    if not error <= MOST_ERROR:
        found.append(
            Finding(
                GROUP, "precision", f"a float32 product is off by {error:.1g}", WARNS,
                f"at most {MOST_ERROR:.0e} is expected at `compute.matmul_precision: highest`: unset XLA_FLAGS and"
                " JAX_DEFAULT_MATMUL_PRECISION, and see whether NVIDIA_TF32_OVERRIDE is set",
            )
        )  # fmt: skip
    else:
        found.append(Finding(GROUP, "precision", f"float64 sums; a float32 product is off by {error:.1g}"))
    return found


def _forgotten(seen: Probed, environ: Mapping[str, str]) -> Finding | None:
    """Return a warning if there are GPUs, or the scheduler assigned some, but JAX uses the CPU by default."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    is_hidden = visible is not None and visible.strip() in ("", "-1", "NoDevFiles")
    given = visible if job_id(environ) else None
    if seen["platform"] != "cpu" or environ.get("JAX_PLATFORMS") or is_hidden or not (seen["gpu_files"] or given):
        return None
    there = f"this job was given GPU {given}" if given else f"there are {seen['gpu_files']} GPUs"
    return Finding(
        GROUP, "platform", f"cpu, although {there}", WARNS, "install the packages for them: `make env ACCELERATOR=cuda`"
    )  # fmt: skip
