"""List the platforms of JAX on this machine, in a separate process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayesmesh.reproduction.benchmarks.process import Contender, ask_once

__all__ = ["ON", "ON_CPU", "Platforms", "list_platforms", "on_platforms"]

ON_CPU = {"cpu": "cpu"}
"""Only the CPU, for `on_platforms`."""

ON = " on "
"""Separates the name of a contender from a platform other than the CPU."""

_LIMIT_S = 120.0


class Platforms:
    """Reports the platforms; nothing is timed."""

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Return platform -> what ``JAX_PLATFORMS`` calls it."""
        import jax

        del case
        device = jax.devices()[0]
        word: str = device.platform
        if word == "gpu":
            word = "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
        return {"platforms": {"cpu": "cpu", device.platform: word}}

    def run(self, repeat: int) -> dict[str, object]:
        """Nothing is timed."""
        raise NotImplementedError(f"round {repeat} of what does not change")


def list_platforms() -> dict[str, str]:
    """Return platform (cpu, gpu, tpu) -> the word by which `JAX_PLATFORMS` chooses it; the CPU is always there."""
    found: dict[str, str] = ask_once(Contender("platforms", f"{__name__}:Platforms"), {}, _LIMIT_S)["platforms"]
    return found


def on_platforms(contenders: Iterable[Contender], platforms: Mapping[str, str]) -> list[Contender]:
    """Return contenders on JAX once per platform: on the CPU under their own names, else as ``NAME on gpu``.

    Args:
        contenders: contenders on JAX.
        platforms: result of `list_platforms`.
    """
    return [
        c._replace(
            name=c.name if name == "cpu" else f"{c.name}{ON}{name}", variables={**c.variables, "JAX_PLATFORMS": word}
        )
        for name, word in platforms.items()
        for c in contenders
    ]
