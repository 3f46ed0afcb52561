"""doctor: cores and accelerators as the operating system reports them, without JAX."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.operations.doctor import memory
from bayesmesh.operations.doctor.finding import OK, WARNS, Finding, ask
from bayesmesh.running.gpus import tpu_chips
from bayesmesh.running.machine import usable_cores

__all__ = ["check"]

GROUP = "machine"


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Return findings about host, cores, memory, GPUs and TPUs."""
    return [Finding(GROUP, "host", socket.gethostname()), _cores(), memory.check(environ), *_gpus(environ), *_tpus()]


def _cores() -> Finding:
    return Finding(GROUP, "cores", f"{usable_cores()} usable of {os.cpu_count()}")


def _gpus(environ: Mapping[str, str]) -> list[Finding]:
    nodes = sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*"))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    found = ask(["nvidia-smi", "--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader"], environ)
    listed = [] if found is None or found.returncode else [line.strip() for line in found.stdout.splitlines() if line]
    findings = [Finding(GROUP, "GPU", line) for line in listed]
    if not findings:
        findings = [Finding(GROUP, "GPU", f"{len(nodes)} device files" if nodes else "none")]
    if nodes and not listed:
        findings[0] = Finding(
            GROUP, "GPU", f"{len(nodes)} device files, but nvidia-smi does not answer", WARNS,
            "ask the site for a working NVIDIA driver; if only nvidia-smi is not installed, see the findings of JAX below",
        )  # fmt: skip
    if visible is not None:
        shown, is_hidden = visible.strip() or "empty", visible.strip() in ("", "-1", "NoDevFiles")
        hides = is_hidden and bool(nodes)
        findings.append(
            Finding(
                GROUP, "visible GPUs", f"CUDA_VISIBLE_DEVICES is {shown}", WARNS if hides else OK,
                "it hides every GPU: unset it, or ask the scheduler for one (`gpu: 1` in the profile)" if hides else "",
            )
        )  # fmt: skip
    return findings


def _tpus() -> list[Finding]:
    count = len(tpu_chips())
    return [Finding(GROUP, "TPU", f"{count} chips")] if count else []
