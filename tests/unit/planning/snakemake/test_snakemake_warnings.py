"""Warnings come once planning has ended, whether it fails or not."""

from __future__ import annotations

import pytest
from snakemake.api import Workflow

from bayesmesh.planning.snakemake import snakemake_warnings as module


@pytest.mark.parametrize("fails", [False, True])
def test_warnings_follow_planning(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    said: list[str] = []

    def original(self: object) -> None:
        said.append("planned")
        if fails:
            raise SystemExit(2)

    monkeypatch.setattr(module, "_build", original)
    monkeypatch.setattr(Workflow, "_build_dag", original)
    module.warn_after_planning(lambda: said.append("warned"))
    if fails:
        with pytest.raises(SystemExit):
            Workflow._build_dag(None)
    else:
        Workflow._build_dag(None)
    assert said == ["planned", "warned"]
