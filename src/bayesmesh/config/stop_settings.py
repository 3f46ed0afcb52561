"""The `sampling.stop` key: a stopping rule, fixed before sampling."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from bayesmesh.config.settings import Settings, does_not_fit

__all__ = ["StopSettings"]

_EXAMPLE = "for example\n    sampling:\n      stop:\n        min_ess_bulk: 400\n        max_r_hat: 1.01"


class StopSettings(Settings):
    """Targets, monitored summaries, and numbers of draws at which to look; sampling ends when a look meets all targets.

    Reference:
        Glynn and Whitt 1992, "The asymptotic validity of sequential stopping rules for stochastic simulations",
        doi:10.1214/aoap/1177005777; Vats, Flegal and Jones 2019, "Multivariate output analysis for Markov chain Monte
        Carlo", doi:10.1093/biomet/asz002, for rules on the effective sample size.
    """

    min_ess_bulk: float | None = Field(None, gt=0, le=1e9)
    """Target: the smallest bulk effective sample size is at least this, in draws."""
    min_ess_tail: float | None = Field(None, gt=0, le=1e9)
    """Target: the smallest tail effective sample size is at least this, in draws."""
    max_r_hat: float | None = Field(None, gt=1, le=10)
    """Target: the largest R-hat is at most this (no unit). Needs two chains in a group."""
    max_mcse: dict[str, Annotated[float, Field(gt=0)]] | None = Field(None, min_length=1)
    """Target: summary -> largest Monte Carlo standard error of its mean, in the unit of the summary."""
    summaries: tuple[str, ...] | None = Field(None, min_length=1)
    """Summaries for R-hat and effective sample sizes; by default, all that the gates assess."""
    first_look: int = Field(100, ge=1, le=100_000_000)
    """Draws per chain at the first look; a look uses all draws up to its number."""
    growth: float = Field(1.5, ge=1.1, le=10)
    """Factor between the numbers of draws of successive looks (no unit)."""
    max_seconds: float | None = Field(None, gt=0, le=1e9)
    """Limit on the time of sampling over all runs, in seconds of wall time, without warmup; checked at each commit."""

    @model_validator(mode="after")
    def _check_targets(self) -> StopSettings:
        names = ("min_ess_bulk", "min_ess_tail", "max_r_hat", "max_mcse")
        if all(getattr(self, name) is None for name in names):
            raise does_not_fit("sampling.stop", f"no target; set at least one of {', '.join(names)}", _EXAMPLE)
        return self
