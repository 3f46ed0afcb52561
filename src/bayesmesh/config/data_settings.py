"""The `data` key: which source, its options, and the held-out split."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["DataSettings"]


class DataSettings(Settings):
    """Keys that every source accepts in addition to its own options."""

    held_out_fraction: float = Field(0.0, ge=0, lt=1)
    """Share kept from the chains for evaluation: of the rows, or of each user's films in a watch matrix (those cells
    then read 'not watched')."""
    split_seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the held-out split."""
