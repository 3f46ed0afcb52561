"""The `report` key: content of the page of an experiment."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["ReportSettings"]


class ReportSettings(Settings):
    """Texts and limits of the page."""

    caption: str = Field("", max_length=4000)
    """A paragraph under the title of the page."""
    category: str = Field("Experiments", max_length=100)
    """Heading in Snakemake's own report."""
    num_traces: int = Field(6, ge=1, le=50)
    """Number of summaries with traces, the worst first."""
