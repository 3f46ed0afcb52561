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
        description="Draws from which outcomes are simulated, evenly spread; fewer if there are fewer.",
    )
    prior: bool = Field(False, description="Whether outcomes are also simulated from as many draws of the prior.")
