"""Settings of the scores of ratings."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Errors of predicted held-out ratings, beside those of simple rules, and coverage of predictive intervals; needs held-out rows."""

    draws: int = Field(2000, ge=2, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")
    given: float = Field(
        0.8,
        gt=0,
        lt=1,
        description="Share of the ratings of each wholly held-out user from which the user is folded in; the other "
        "ratings are predicted, with at most 200 draws.",
    )
    resamples: int = Field(
        1000,
        ge=100,
        le=100_000,
        description="Number of bootstrap resamples of the users, for 95% intervals of the scores.",
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the resamples and of random splits of the ratings.")
