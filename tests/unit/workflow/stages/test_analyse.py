"""An analysis has to write what it declares: its outputs are those of its rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.analyses.averaging.analysis import Averaging
from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import UserError
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import component_of, make_analysis
from bayesmesh.workflow.jobs import Job, make_job
from bayesmesh.workflow.stages import analyse

CONFIG = {
    "title": "Small", "data": {"source": "digits"}, "model": {"name": "softmax_regression"},
    "kernel": {"name": "hmc"}, "averaging": {},
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Job:
    return make_job("average", "small", experiment_class().model_validate(CONFIG), str(tmp_path))


def writing(*names: str) -> Any:
    """Return a `run` that writes some files."""

    def run(self: Averaging, subject: Any, others: Any, files: Mapping[str, Path]) -> str:
        for name in names:
            files[name].mkdir() if name.endswith(".zarr") else files[name].write_text("a\n1\n")
        return "done"

    return run


def test_an_output_that_is_not_written_is_named(spec: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Averaging, "run", writing("scores.csv"))
    with pytest.raises(UserError, match=r"predictions\.zarr: not written by the analysis 'averaging'") as caught:
        analyse.run(spec, Ledger(Path("unused"), "average"), make_analysis(spec), [component_of(spec, "model")])
    assert "analyses/averaging/analysis.py" in caught.value.remedy
    assert "remove 'predictions.zarr' from `outputs`" in caught.value.remedy
