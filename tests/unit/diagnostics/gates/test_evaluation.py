"""Each gate on its own: what it lets pass, what it does not, and how it says so."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.energy import Energies
from bayesmesh.diagnostics.gates.evaluation import evaluate_gates
from bayesmesh.diagnostics.verdict import GateResult, overall

NAMES = ["r_hat", "ess_bulk", "ess_tail", "mcse_mean", "divergences", "bfmi"]
GOOD = {"label": "", "sd": 2.0, "mcse_mean": 0.05, "r_hat": 1.001, "ess_bulk": 900.0, "ess_tail": 700.0, "chance": 0.0}
BAD = {"r_hat": 1.0101, "ess_bulk": 399.0, "ess_tail": 399.0, "mcse_mean": 0.201, "divergences": 2e-3, "bfmi": 0.29}


def verdict_with(name: str = "", value: float = 0.0, gates: GateSettings | None = None, sd: float | None = None):
    """Judge three coordinates and three chains; ``logits[1,3]`` or chain 2 has the given value."""
    table = pd.DataFrame(
        [{"variable": "level", "index": ""} | GOOD] + [{"variable": "logits", "index": f"1,{i}"} | GOOD for i in (2, 3)]
    )
    share, bfmi = 0.0, np.array([0.9, 0.8, 0.7])
    if name == "divergences":
        share = value
    elif name == "bfmi":
        bfmi[2] = value
    elif name:
        table.loc[2, name] = value
    if sd is not None:
        table.loc[2, "sd"] = sd
    content = dumped(_evaluate(table, share, bfmi, gates or GateSettings()))
    return content, {gate["name"]: gate for gate in content["gates"]}


def _evaluate(table: pd.DataFrame, share: float, bfmi: np.ndarray, gates: GateSettings) -> list[GateResult]:
    return evaluate_gates(table, Energies(bfmi, share, share, 0), ("diverging", "energy"), gates)


def dumped(results: list[GateResult]) -> dict[str, Any]:
    """Return results and their overall verdict as strict JSON holds them."""
    content = {"verdict": overall(results), "gates": [result.model_dump(mode="json") for result in results]}
    json.dumps(content, allow_nan=False)
    return content


def test_good_values_pass_every_gate_in_the_order_of_the_settings() -> None:
    content, _ = verdict_with()
    assert [gate["name"] for gate in content["gates"]] == NAMES
    assert {gate["verdict"] for gate in content["gates"]} == {"pass"}
    assert content["verdict"] == "pass"


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_value_misses_its_own_gate_only(name) -> None:
    content, gates = verdict_with(name, BAD[name])
    assert content["verdict"] == "fail"
    assert [gate["name"] for gate in content["gates"] if gate["verdict"] != "pass"] == [name]
    assert gates[name]["value"] == pytest.approx(BAD[name] / (GOOD["sd"] if name == "mcse_mean" else 1))
    assert gates[name]["where"] == {"bfmi": "chain 2", "divergences": ""}.get(name, "logits[1,3]")
    assert "limit" in gates[name]["message"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_never_passes(name, value) -> None:
    content, gates = verdict_with(name, value)
    assert content["verdict"] == gates[name]["verdict"] == "fail"
    assert gates[name]["value"] is None
    assert "not a number" in gates[name]["message"] or "infinite" in gates[name]["message"]
    assert gates[name]["where"] == {"bfmi": "chain 2", "divergences": ""}.get(name, "logits[1,3]")


@pytest.mark.parametrize("name", NAMES)
def test_a_missed_gate_yields_its_severity(name) -> None:
    limit = GateSettings().model_dump()[name]["limit"]
    settings = GateSettings.model_validate({name: {"limit": limit, "severity": "warn"}})
    content, gates = verdict_with(name, BAD[name], settings)
    assert content["verdict"] == gates[name]["verdict"] == "warn"
    content, gates = verdict_with(name, np.nan, settings)
    assert content["verdict"] == gates[name]["verdict"] == "warn"


@pytest.mark.parametrize("name", ["r_hat", "ess_bulk", "ess_tail", "bfmi"])
def test_a_value_at_the_limit_passes(name) -> None:
    assert verdict_with(name, GateSettings().model_dump()[name]["limit"])[0]["verdict"] == "pass"


def test_the_worst_verdict_counts() -> None:
    settings = GateSettings.model_validate({"r_hat": {"limit": 1.01, "severity": "warn"}, "bfmi": 0.95})
    assert verdict_with("r_hat", 1.5, settings)[0]["verdict"] == "fail"


def test_a_constant_coordinate_is_named_as_such() -> None:
    _, gates = verdict_with("mcse_mean", 0.0, sd=0.0)
    assert gates["mcse_mean"]["verdict"] == "fail"
    assert "logits[1,3] is not a number: the coordinate is constant" in gates["mcse_mean"]["message"]
    _, gates = verdict_with("r_hat", np.nan)
    assert "too few draws or chains" in gates["r_hat"]["message"]
    _, gates = verdict_with("r_hat", np.nan, sd=np.nan)
    assert "a draw is not finite" in gates["r_hat"]["message"]


@pytest.mark.parametrize(("sd_of_density", "verdict"), [(2.0, "pass"), (0.0, "fail")])
def test_a_posterior_that_is_the_prior_passes_although_its_log_likelihood_is_constant(sd_of_density, verdict) -> None:
    constant = GOOD | {"sd": 0.0, "mcse_mean": 0.0, "r_hat": np.nan}
    density = GOOD if sd_of_density else constant
    rows = [
        {"variable": "log_density"} | density,
        {"variable": "log_likelihood"} | constant,
        {"variable": "level"} | GOOD,
    ]
    results = _evaluate(pd.DataFrame([row | {"index": ""} for row in rows]), 0.0, np.full(4, 0.9), GateSettings())
    assert overall(results) == verdict
    assert results[0].message.endswith("the posterior is the prior") == (verdict == "pass")


def test_the_message_counts_misses_and_scalars_have_no_index() -> None:
    table = pd.DataFrame([{"variable": "level", "index": ""} | GOOD | {"r_hat": 1.3}] * 2)
    gate = dumped(_evaluate(table, 0.0, np.array([0.9]), GateSettings()))["gates"][0]
    assert gate["where"] == "level"
    assert "R-hat of level is 1.3 (limit: at most 1.01); 2 of 2 values miss it" in gate["message"]


def test_nothing_to_judge_does_not_pass() -> None:
    empty = pd.DataFrame({name: [] for name in ("variable", "index", *GOOD)})
    content = dumped(_evaluate(empty, float("nan"), np.array([]), GateSettings()))
    assert {gate["verdict"] for gate in content["gates"]} == {"fail"}
    assert {gate["value"] for gate in content["gates"]} == {None}


def r_hat_gate(values: list[tuple[float, float]], limit: float = 1.01) -> dict[str, Any]:
    """Judge scalars with the given R-hats and chances."""
    rows = [{"variable": f"v{i}", "index": ""} | GOOD | {"r_hat": r, "chance": p} for i, (r, p) in enumerate(values)]
    settings = GateSettings.model_validate({"r_hat": limit})
    return dumped(_evaluate(pd.DataFrame(rows), 0.0, np.array([0.9]), settings))["gates"][0]


@pytest.mark.parametrize(("share", "verdict"), [(0.0, "pass"), (2.5e-4, "warn"), (1e-3, "warn"), (1.01e-3, "fail")])
def test_isolated_divergences_warn(share: float, verdict: str) -> None:
    content, gates = verdict_with("divergences", share)
    assert content["verdict"] == gates["divergences"]["verdict"] == verdict
    said = "at most one draw in 1,000: too few to move a mean by themselves"
    assert (said in gates["divergences"]["message"]) == (verdict == "warn")
    assert (
        verdict_with("divergences", share, GateSettings.model_validate({"divergences": 0.01}))[0]["verdict"] == "pass"
    )


@pytest.mark.parametrize("given", [0, {"limit": 0, "severity": "fail"}, 1e-4])
def test_a_limit_of_divergences_that_is_given_is_strict(given: Any) -> None:
    settings = GateSettings.model_validate({"divergences": given})
    assert verdict_with("divergences", 2.5e-4, settings)[0]["verdict"] == "fail"
    # The diagnose stage reads settings with all defaults written out.
    for each, verdict in ((settings, "fail"), (GateSettings(), "warn")):
        again = GateSettings.model_validate(each.model_dump(mode="json"))
        assert verdict_with("divergences", 2.5e-4, again)[0]["verdict"] == verdict


def test_an_r_hat_that_chance_explains_is_a_warning() -> None:
    gate = r_hat_gate([(1.0117, 0.002), (1.003, 1.0)])
    assert (gate["verdict"], gate["severity"], gate["value"], gate["where"]) == ("warn", "fail", 1.0117, "v0")
    assert "R-hat of v0 is 1.0117 (limit: at most 1.01); 1 of 2 values misses it; chance explains it" in gate["message"]
    assert "about 1.2 times as many draws would settle it" in gate["message"]
    assert "about 49 times as many draws" in r_hat_gate([(1.49, 0.5)])["message"]
    assert "many more draws would settle it" in r_hat_gate([(1.02, 0.5)], limit=1.0)["message"]


def test_the_more_values_the_less_chance_one_of_them_needs() -> None:
    assert r_hat_gate([(1.02, 6e-4)])["verdict"] == "fail"
    assert r_hat_gate([(1.02, 6e-4), (1.0, 1.0)])["verdict"] == "warn"


def test_one_value_beyond_chance_fails_and_is_named() -> None:
    gate = r_hat_gate([(1.03, 0.2), (1.02, 1e-9), (1.0, 1.0)])
    assert (gate["verdict"], gate["where"]) == ("fail", "v0")
    assert "; chance does not explain 1 of them; the worst is v1; chains disagree" in gate["message"]
    assert r_hat_gate([(np.nan, np.nan), (1.02, 0.5)])["verdict"] == "fail"
    assert r_hat_gate([(np.inf, 0.0)])["verdict"] == "fail"
