"""One module writes the verdict and reads it back."""

from __future__ import annotations

import json
import math
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
