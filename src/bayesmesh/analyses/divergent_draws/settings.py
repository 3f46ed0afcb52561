"""Settings of the search for the places of divergences."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Latents, and pairs of them, at whose values divergences gather."""

    latents: int = Field(
        500, ge=2, le=100_000, description="Numbers of latents that are looked at; of longer arrays evenly spread ones."
    )
    drawn: int = Field(1000, ge=10, le=20_000, description="Draws without divergence in the figures, evenly spread.")
