"""Settings of the sensitivity to prior and likelihood."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Sensitivity of every quantity to powers of the prior and of the likelihood."""

    draws: int = Field(4000, ge=40, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")
    quantities: int = Field(
        500,
        ge=1,
        le=100_000,
        description="Maximum number of elements of summaries and latents to list, evenly spaced in longer arrays.",
    )
