"""Settings of the scores of ratings."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Errors of predicted ratings on hidden ones, beside simple rules, and how often intervals hold them; needs held-out rows."""

    draws: int = Field(
        2000, ge=2, le=1_000_000, description="Draws that are used, evenly spread; fewer if there are fewer."
    )
    given: float = Field(
        0.8,
        gt=0,
        lt=1,
        description="Of users who are held out whole, share of the ratings from which each is folded in; the others are "
        "predicted, with at most 200 draws.",
    )
    resamples: int = Field(
        1000, ge=100, le=100_000, description="Resamples of the users for 95% intervals of the scores."
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="Seed of resamples, and of the split that chooses the penalty of biases."
    )
