"""The verdict as one sentence: failures and warnings are told apart."""

from __future__ import annotations

import math

from bayesmesh.diagnostics.verdict import GateResult, NumCoordinates, Outcome, Verdict, overall
from bayesmesh.report.report_verdict_text import limit_text, read_aloud, value_text


def sentence(num_restarted: int = 0, *, raised: float | None = None, **outcomes: Outcome) -> str:
    gates = tuple(
        GateResult(
            name=name, limit=1.0, direction="at most", value=2.0, where="", severity="fail", verdict=outcome, found=""
        )
        for name, outcome in outcomes.items()
    )
    return read_aloud(
        Verdict(
            verdict=overall(gates), gates=gates, experiment="x", num_chains=2, num_draws=60, latents={}, bfmi=(),
            num_coordinates=NumCoordinates(summaries=1, latents=0, listed=1), num_divergences=None,
            divergence_share=math.nan, acceptance_rate=None, num_restarted=num_restarted,
            raised_target_acceptance=raised,
        )
    )  # fmt: skip


def test_a_warning_does_not_count_as_a_failure() -> None:
    said = sentence(r_hat="warn", ess_bulk="fail", ess_tail="fail", bfmi="pass")
    assert said.startswith("This run failed 2 of 4 gates (bulk ESS and tail ESS), with a warning on R-hat. Do not rely")
    assert sentence(ess_bulk="fail", bfmi="pass").startswith("This run failed 1 of 2 gates (bulk ESS). Do not")
    assert "1 of 2 gates gave a warning (R-hat), and none failed" in sentence(r_hat="warn", bfmi="pass")
    assert sentence(r_hat="pass").startswith("All 1 gates pass")


def test_restarted_chains_are_named_whatever_the_verdict() -> None:
    for outcome in ("pass", "fail"):
        assert "During warmup, 1 of 2 chains was in a mode of negligible mass and restarted from others" in sentence(
            1, r_hat=outcome
        )
        assert "restarted" not in sentence(0, r_hat=outcome)


def test_a_raised_target_acceptance_is_named_whatever_the_verdict() -> None:
    for outcome in ("pass", "fail"):
        assert "the target acceptance was raised to 0.95, because" in sentence(raised=0.95, r_hat=outcome)
        assert "raised" not in sentence(r_hat=outcome)


def test_a_small_share_of_divergences_is_told_from_its_limit() -> None:
    gate = GateResult(
        name="divergences", limit=1e-5, direction="at most", value=1.14e-6, where="", severity="fail", verdict="pass", found=""
    )  # fmt: skip
    assert (value_text(gate), limit_text(gate)) == ("0.00011%", "≤ 0.0010%")
