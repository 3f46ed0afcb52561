"""The log says why chains are sampled although there are others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.sampling.loop.new_chains import explain_new_chains
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.sealed import write_sealed

BEFORE = {"config": {"sampling": {"seed": 1, "draws": 5}}, "data": "a", "draws": 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"sampling": {"seed": 2, "draws": 5}}}, "sampling.seed was 1 and is 2"),
        ({"data": "b"}, "the data have changed"),
        ({"draws": 3}, "an earlier version of bayesmesh sampled them"),
        ({"draws": 3, "data": "b"}, "the data have changed, an earlier version of bayesmesh sampled them"),
        ({}, "the code of the model or the kernel has changed"),
        ({"config": {"sampling": {"seed": 1, "draws": 9}}}, "the code of the model or the kernel has changed"),
    ],
)
def test_the_reason_is_what_has_changed(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    assert explain_new_chains(layout, "b" * 16, {**BEFORE, **change}) == ""
    write_sealed(layout.identity_record("a" * 16), {**BEFORE, "segment_draws": 5})
    assert explain_new_chains(layout, "a" * 16, {**BEFORE, **change}) == ""
    assert f"anew: {reason};" in explain_new_chains(layout, "b" * 16, {**BEFORE, **change})
