"""Which platforms JAX has on this machine, found out in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayesmesh.reproduction.benchmarks.process import Contender, ask_once

__all__ = ["ON", "ON_CPU", "Platforms", "list_platforms", "on_platforms"]

ON_CPU = {"cpu": "cpu"}
"""The CPU alone, as a platform of `on_platforms`."""

ON = " on "
"""Between the name of a contender and its platform, where that is not the CPU."""

_LIMIT_S = 120.0


class Platforms:
    """Says which platforms there are; nothing is timed."""

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
    """Return contenders on JAX, each once a platform: on the CPU, where others are, by its own name; else as ``NAME on gpu``.

    Args:
        contenders: who.
        platforms: as of `list_platforms`.
    """
    return [
        c._replace(
            name=c.name if name == "cpu" else f"{c.name}{ON}{name}", variables={**c.variables, "JAX_PLATFORMS": word}
        )
        for name, word in platforms.items()
        for c in contenders
    ]
