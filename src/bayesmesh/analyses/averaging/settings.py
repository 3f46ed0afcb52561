"""The `averaging` key: posterior predictive averages over draws on the test rows."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["AveragingSettings"]


class AveragingSettings(Settings):
    """Scores of single draws and of their average; needs a source with test rows."""

    calibration_bins: int = Field(
        15, ge=2, le=1000, description="Equal-width confidence bins of the expected calibration error."
    )
    points_per_decade: int = Field(
        4, ge=1, le=100, description="Draw counts per factor of ten at which the average is scored."
    )
