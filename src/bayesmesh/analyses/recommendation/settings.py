"""Settings of recommendation."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Films ranked for a few users, and held-out scores of all users; needs a watch matrix."""

    num_films: int = Field(20, ge=1, le=10_000, description="Films listed per user in top.csv.")
    users: tuple[int, ...] = Field(
        (),
        description="Row numbers of users to list in addition to the most and the least active user.",
        max_length=1000,
    )
    top: int = Field(
        10, ge=1, le=1000, description="Depth of `p_top`, the probability that a film is among the user's best."
    )
    cutoff: int = Field(20, ge=1, le=1000, description="Cutoff rank of recall and NDCG on held-out films.")
    draws: int = Field(
        64,
        ge=1,
        le=100_000,
        description="Number of draws of the films for folding in users whom the chains have not seen.",
    )
    baselines: bool = Field(
        True,
        description="Also score EASE, implicit ALS and a mode of the posterior, fitted to the training matrix.",
    )
