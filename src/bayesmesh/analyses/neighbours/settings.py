"""Settings of neighbours."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Nearest neighbours of some films in the space of embeddings, with intervals."""

    films: tuple[int, ...] = Field(
        (),
        max_length=100,
        description="Columns of the watch matrix whose neighbours are listed; by default, the most watched films.",
    )
    num_films: int = Field(8, ge=1, le=100, description="Number of films whose neighbours are listed by default.")
    num_neighbours: int = Field(5, ge=1, le=50, description="Number of neighbours listed for each film.")
    draws: int = Field(2000, ge=20, le=1_000_000, description="Maximum number of draws to use, evenly spaced.")
