"""Compute the identity of a chain from everything that determines its draws."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from bayesmesh.config.versions import DRAWS
from bayesmesh.errors import StoreError
from bayesmesh.sampling.density.mesh import describe_devices
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.checked import read_checked

_NOT_PART = (
    *("draws", "stop", "chains", "chain_groups", "mode"),
    *("segment_seconds", "grace_seconds", "on_changed_environment"),
)
"""Settings of `sampling` that change no draw of a chain, or that the number of chains of a program already represents."""


def chain_identity(
    config: Mapping[str, Any], code: str, data_fingerprint: str, num_chains: int, relative: str = ""
) -> str:
    """Return a digest of data, model, kernel, mesh, arithmetic, seed and code, as 16 hexadecimal digits.

    The number of draws is not part of it, because more draws extend the same chains.

    Args:
        config: the stage's part of the configuration.
        code: digest of the files of the model, the kernel, its metric and the functions that their options name; `DRAWS`
            stands for the sampler's own.
        data_fingerprint: fingerprint of the sharded data.
        num_chains: chains of one program; their number affects rounding.
        relative: identity of the chains that these continue; empty if there are none.
    """
    parts = {
        **{key: config[key] for key in ("model", "kernel", "compute")},
        "data": data_fingerprint,
        "sampling": {k: v for k, v in config["sampling"].items() if k not in _NOT_PART},
        "num_chains": num_chains,
        "code": code,
        "draws": DRAWS,
        # Left out if there are none, which is the usual case.
        **({"relative": relative} if relative else {}),
        **({"replicates": field} if (field := config.get("data", {}).get("replicates")) else {}),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def environment(mesh: jax.sharding.Mesh, packages: Iterable[str] = ()) -> dict[str, object]:
    """Return the facts that must not change if chains are to continue bit for bit.

    XLA compiles for the instruction set of the processor it runs on, so the processor's model is one of them.

    Args:
        mesh: mesh of the programs.
        packages: distributions that the model needs in addition to those that every model needs.
    """
    return {
        **describe_devices(mesh),
        "machine": platform.machine(),
        "processor": _processor(),
        "driver": _driver() if mesh.devices.flat[0].platform == "gpu" else "",
        "xla_flags": _compiler_flags(),
        "packages": {name: metadata.version(name) for name in (*_PACKAGES, *packages)},
    }


_PACKAGES = ("jax", "jaxlib", "tfp-nightly", "numpy")


def _processor() -> str:
    """Return the processor's model and a digest of its features; empty if the system does not report them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    found = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    features = " ".join(sorted(found.get("flags", found.get("Features", "")).split()))
    return f"{found.get('model name', found.get('CPU part', ''))} {hashlib.sha256(features.encode()).hexdigest()[:8]}"


def _driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except OSError:
        return ""


_SAME_DRAWS = re.compile(
    r"JAX_(PLATFORMS|PLATFORM_NAME|ENABLE_X64|DEFAULT_MATMUL_PRECISION|NUM_CPU_DEVICES|NUMPY_RANK_PROMOTION"
    r"|NUMPY_DTYPE_PROMOTION|DEFAULT_PRNG_IMPL|THREEFRY_PARTITIONABLE|RANDOM_SEED_OFFSET|TRACEBACK_FILTERING"
    r"|COORDINATOR_\w+|NUM_PROCESSES|PROCESS_ID|LOCAL_DEVICE_IDS|LOG_\w+|LOGGING_LEVEL|DEBUG_LOG_MODULES|EXPLAIN_\w+"
    r"|ENABLE_COMPILATION_CACHE|COMPILATION_CACHE_\w+|PERSISTENT_CACHE_\w+|RAISE_PERSISTENT_CACHE_ERRORS|DUMP_\w+)"
)
"""Environment variables of JAX that change no draw: those that are overridden here, and those for logs, caches and peers."""


def _compiler_flags() -> str:
    """Return the flags given to XLA, without the number of virtual devices, which the mesh records, and those given to JAX."""
    flags = [f for f in os.environ.get("XLA_FLAGS", "").split() if "force_host_platform_device_count" not in f]
    of_jax = [f"{k}={v}" for k, v in os.environ.items() if k.startswith("JAX_") and not _SAME_DRAWS.fullmatch(k)]
    return " ".join(sorted([*flags, *of_jax]))


def check_environment(
    stored: Mapping[str, object], present: Mapping[str, object], policy: str, folder: str
) -> list[str]:
    """Compare the environment in which chains began with the current one; return the differences.

    Raises:
        StoreError: something differs and the policy is to refuse.
    """
    differences = [
        f"{key}: {stored.get(key, 'not recorded')} then, {present[key]} now"
        for key in present
        if key not in stored or stored[key] != present[key]
    ]
    if differences and policy == "refuse":
        raise StoreError(
            f"{folder}: the chains began elsewhere and would not continue bit for bit: {'; '.join(differences)}",
            "go back to that environment, or set `sampling.on_changed_environment: accept` (the change is recorded), or move the folder away to start afresh",
        )
    return differences


_NOT_IN_IDENTITY = {f"sampling.{k}" for k in ("draws", "segment_seconds", "grace_seconds", "on_changed_environment")}
"""Recorded keys that are not part of a chain's identity."""

EARLIER = "an earlier version of bayesmesh sampled them"


def explain_new_chains(layout: ExperimentLayout, identity: str, made_from: Mapping[str, Any]) -> str:
    """Return one sentence for the log; empty if nothing was sampled before, or if the chains continue.

    Args:
        layout: paths of the experiment.
        identity: identity of the chains to sample.
        made_from: the stage's part of the configuration in ``config``, the fingerprint of the ``data``, and ``draws``, the
            sampler's version.
    """
    records = sorted(layout.chains.glob("*/identity.json"), key=lambda path: path.stat().st_mtime)
    if not records or layout.identity_record(identity).exists():
        return ""
    try:
        reason = _reason(read_checked(records[-1]), made_from)
    except StoreError:
        reason = "their record is damaged"
    newest = records[-1].parent
    return (
        f"chains are sampled anew: {reason}; those of identity {newest.name} are kept in {newest}"
        " (`bayesmesh gc` removes what no configuration names)"
    )


def _reason(stored: Mapping[str, Any], made_from: Mapping[str, Any]) -> str:
    before, now = dict(_flat(stored.get("config", {}))), dict(_flat(made_from["config"]))
    changed = [
        f"{key} was {before.get(key, 'not set')} and is {now.get(key, 'not set')}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in _NOT_IN_IDENTITY and not key.startswith("sampling.stop")
    ]
    if "data" in stored and stored["data"] != made_from["data"]:
        changed.append("the data have changed")
    if stored.get("relative", "") != made_from.get("relative", ""):
        changed.append("they continue other chains")
    if stored.get("draws") != made_from["draws"]:
        changed.append(EARLIER)
    # Everything else that determines draws is code.
    return ", ".join(changed) or "the code of the model or the kernel has changed"


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with dotted keys."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
