"""The `gates` key: what a posterior must satisfy to be called converged."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from bayesmesh.config.settings import Settings

__all__ = ["Gate", "GateSettings"]


class Gate(Settings):
    """A limit, and the verdict if it is missed."""

    limit: float
    """The limit itself."""
    severity: Literal["fail", "warn"] = "fail"
    """Verdict if the gate does not pass."""


def _gate(limit: float, text: str) -> Gate:
    return Field(
        Gate(limit=limit, severity="fail"), description=f"{text} A plain number is a limit with severity `fail`."
    )


class GateSettings(Settings):
    """Gates on the model's identified summaries; a value that is not a number never passes."""

    r_hat: Gate = _gate(1.01, "Largest rank-normalised split R-hat.")
    ess_bulk: Gate = _gate(400.0, "Smallest bulk effective sample size, in draws.")
    ess_tail: Gate = _gate(400.0, "Smallest tail effective sample size, in draws.")
    mcse_mean: Gate = _gate(0.1, "Largest Monte Carlo standard error of a mean, in posterior standard deviations.")
    divergences: Gate = _gate(0.0, "Largest share of divergent draws.")
    bfmi: Gate = _gate(0.3, "Smallest Bayesian fraction of missing information of a chain.")
    max_coordinates: int = Field(2000, ge=1, le=10_000_000)
    """Most coordinates of each latent in summary.csv, evenly spaced if there are more. Gates assess summaries, which
    are always listed in full."""

    @field_validator("r_hat", "ess_bulk", "ess_tail", "mcse_mean", "divergences", "bfmi", mode="before")
    @classmethod
    def _accept_plain_number(cls, value: object) -> object:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"limit": float(value)}
        return value
