"""The `report` key: what the page of an experiment shows."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["ReportSettings"]


class ReportSettings(Settings):
    """Texts and bounds of the page."""

    caption: str = Field("", max_length=4000)
    """A paragraph under the title of the page."""
    category: str = Field("Experiments", max_length=100)
    """Heading in Snakemake's own report."""
    num_traces: int = Field(6, ge=1, le=50)
    """Summaries whose traces are drawn, the worst first."""
