"""Settings of averaging."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings


class Options(Settings):
    """Scores of single draws and of their average on the test rows; needs a source with test rows."""

    calibration_bins: int = Field(
        15, ge=2, le=1000, description="Number of equal-width confidence bins for the expected calibration error."
    )
    points_per_decade: int = Field(
        4, ge=1, le=100, description="Number of draw counts per factor of ten at which the average is scored."
    )
