"""The `posterior` key: quantities stored with the draws."""

from __future__ import annotations

from pydantic import Field

from bayesmesh.config.settings import Settings

__all__ = ["PosteriorSettings"]


class PosteriorSettings(Settings):
    """Limits on quantities that would otherwise grow with draws x observations."""

    probe_rows: int = Field(32, ge=1, le=10_000)
    """Rows at which the model's summaries (such as logits) are computed for all draws; evenly spaced over the data."""
    pointwise_mebibytes: float = Field(16.0, ge=0, le=65_536)
    """Limit on each of the groups log_likelihood and posterior_predictive, in MiB; they keep evenly spaced rows."""
