"""Settings of the evidence."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Evidence by bridge sampling, and by the tempered chains of kernels that estimate it, each with its error."""

    draws: int = Field(
        8000,
        ge=80,
        le=1_000_000,
        description="Draws used by bridge sampling, evenly spread; fewer if there are fewer. It evaluates the density "
        "at as many more points.",
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of the points that bridge sampling draws from fitted normals."
    )
