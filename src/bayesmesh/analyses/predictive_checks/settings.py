"""Settings of predictive checks."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Posterior predictive checks: test quantities of simulated outcomes beside those of the observed ones."""

    draws: int = Field(
        1000,
        ge=20,
        le=1_000_000,
        description="Maximum number of draws from which to simulate outcomes, evenly spaced.",
    )
    prior: bool = Field(False, description="Also simulate outcomes from as many draws of the prior.")
