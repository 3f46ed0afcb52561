"""Settings that all Hamiltonian kernels share: what their common warmup adapts, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from bayesmesh.config.settings import Argument, Settings, does_not_fit
from bayesmesh.errors import suggest

_FOLDER = Path(__file__).resolve().parent.parent / "kernels" / "hamiltonian" / "metrics"

METRICS = tuple(sorted(p.stem for p in _FOLDER.glob("*.py") if p.stem not in ("__init__", "base")))
"""Names of all metrics: one file each."""


def metric_path(name: str) -> Path:
    """Return the source file of a metric."""
    return _FOLDER / f"{name}.py"


MetricName = Annotated[
    str,
    Field(
        description="How coordinates are scaled against each other: `identity` leaves them as they are, `diagonal` "
        "gives each the scale that warmup estimates for it.",
        json_schema_extra={"enum": list(METRICS)},
    ),
]
"""Name of a metric: one of `METRICS`."""


class HamiltonianSettings(Settings):
    """Settings of the warmup of Hamiltonian kernels; a kernel's `Options` may give them other defaults."""

    target_acceptance: Argument[float] = Field(
        0.8, gt=0, lt=1, description="Acceptance statistic that the step size is adapted to."
    )
    initial_step_size: Argument[float] = Field(
        0.1, gt=0, le=1e6, description="Step size at the first iteration, in units of the metric."
    )
    metric: MetricName = "diagonal"

    @model_validator(mode="after")
    def _check_metric(self) -> HamiltonianSettings:
        if self.metric not in METRICS:
            raise does_not_fit("metric", f"unknown metric '{self.metric}'", suggest(self.metric, METRICS))
        return self
