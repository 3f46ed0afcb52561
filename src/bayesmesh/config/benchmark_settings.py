"""The `benchmarks` key of `config.yaml`."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["BenchmarkSettings"]


class BenchmarkSettings(Settings):
    """Sizes and limits of all benchmarks."""

    quick: bool = False
    """Small sizes: each benchmark in under a minute, too small for claims."""
    seconds_limit: float = Field(20.0, gt=0, le=1e6)
    """Time limit of one run of one contender, in seconds; the table shows which ones reached it."""
