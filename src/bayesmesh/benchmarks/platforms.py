"""Which platforms JAX has on this machine, found out in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesmesh.benchmarks.process import Contender, Process

__all__ = ["Platforms", "list_platforms"]

_LIMIT_S = 120.0


class Platforms:
    """Says which platforms there are; nothing is timed."""

    def prepare(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Return platform -> what ``JAX_PLATFORMS`` calls it."""
        import jax

        del case
        device = jax.devices()[0]
        word: str = device.platform
        if word == "gpu":
            word = "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
        return {"platforms": {"cpu": "cpu", device.platform: word}}

    def run(self, repeat: int) -> dict[str, Any]:
        """Nothing is timed."""
        raise NotImplementedError(f"round {repeat} of what does not change")


def list_platforms() -> dict[str, str]:
    """Return platform (cpu, gpu, tpu) -> the word by which `JAX_PLATFORMS` chooses it; the CPU is always there."""
    process = Process(Contender("platforms", f"{__name__}:Platforms"))
    try:
        found: dict[str, str] = process.ask({"do": "prepare", "case": {}}, _LIMIT_S)["facts"]["platforms"]
    finally:
        process.close()
    return found
