"""Settings of neighbours."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Films that lie close to some others in the space of embeddings, with intervals."""

    films: tuple[int, ...] = Field(
        (),
        max_length=100,
        description="Columns of the watch matrix whose neighbours are listed; by default those that are watched most.",
    )
    num_films: int = Field(8, ge=1, le=100, description="Number of films whose neighbours are listed by default.")
    num_neighbours: int = Field(5, ge=1, le=50, description="Neighbours of each film.")
    draws: int = Field(
        2000, ge=20, le=1_000_000, description="Draws that are used, evenly spread; fewer if there are fewer."
    )
