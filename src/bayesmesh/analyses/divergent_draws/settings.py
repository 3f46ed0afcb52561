"""Settings of the search for the places of divergences."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Values of latents, and of pairs of latents, at which divergences concentrate."""

    latents: int = Field(
        500,
        ge=2,
        le=100_000,
        description="Maximum number of elements of latents to examine, evenly spaced in longer arrays.",
    )
    drawn: int = Field(
        1000, ge=10, le=20_000, description="Maximum number of draws without divergence in the figures, evenly spaced."
    )
