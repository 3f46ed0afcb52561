"""One module writes the verdict and reads it back."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh.diagnostics.verdict import GateResult, Listed, NumCoordinates, Verdict, read_verdict, write_verdict
from bayesmesh.errors import StoreError


def gate(name: str, value: float, verdict: str) -> GateResult:
    return GateResult(
        name=name, limit=1.0, direction="at most", value=value, where="", severity="fail", verdict=verdict, found=name
    )


VERDICT = Verdict(
    verdict="fail",
    gates=(gate("first", 0.5, "pass"), gate("second", math.nan, "warn"), gate("third", 2.0, "fail")),
    experiment="some",
    num_chains=2,
    num_draws=10,
    num_coordinates=NumCoordinates(summaries=1, latents=3, listed=2),
    latents={"level": Listed(total=3, listed=1)},
    num_divergences=None,
    divergence_share=math.nan,
    bfmi=(0.5, math.nan),
    acceptance_rate=None,
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_verdict(path, VERDICT)
    found = read_verdict(path)
    assert found.model_dump(mode="json") == VERDICT.model_dump(mode="json") == json.loads(path.read_text())
    assert math.isnan(found.gates[1].value)
    assert math.isnan(found.bfmi[1])
    assert "null" in path.read_text()


def test_the_message_is_all_that_is_known_and_may_be_that_of_another_version(tmp_path: Path) -> None:
    known = VERDICT.gates[2].model_copy(update={"notes": ("a cause", "another"), "hint": "a remedy"})
    assert known.message == "third; a cause; another; a remedy"
    path = tmp_path / "verdict.json"
    content = VERDICT.model_dump(mode="json")
    for gate in content["gates"]:
        for key in ("found", "notes", "hint", "beyond_draws"):
            del gate[key]
    path.write_text(json.dumps(content))
    assert read_verdict(path) == VERDICT


def test_failing_gates_come_before_warning_ones() -> None:
    assert [g.name for g in VERDICT.missed] == ["third", "second"]
    assert VERDICT.gate("second") is VERDICT.gates[1]
    assert VERDICT.gate("fourth") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("verdict", "good"), ("gates", 3), ("num_chains", None), ("gates", [{"name": "r_hat"}]), ("bfmi", "0.5")],
)
def test_damage_names_the_file_and_the_key(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps({**VERDICT.model_dump(mode="json"), key: value}))
    with pytest.raises(StoreError, match=f"verdict.json: is damaged: {key}") as caught:
        read_verdict(path)
    assert "diagnose" in caught.value.remedy


def test_reading_a_verdict_loads_no_arrays() -> None:
    code = (
        "import sys, bayesmesh.diagnostics.verdict\nprint([m for m in ('jax', 'numpy', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
