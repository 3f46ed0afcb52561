"""Settings of the evidence."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Evidence by bridge sampling and, for kernels that estimate it, by tempered chains, each with its error."""

    draws: int = Field(
        8000,
        ge=80,
        le=1_000_000,
        description="Maximum number of draws for bridge sampling, evenly spaced. It evaluates the density at these and "
        "at as many other points.",
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of the points that bridge sampling draws from the fitted normals."
    )
