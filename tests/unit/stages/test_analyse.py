"""An analysis has to write what it declares: its outputs are those of its rule, and get a receipt."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.analyses.averaging.analysis import Averaging
from bayesmesh.config.declarations import declared
from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.planning.plan_specs import StageSpec, make_spec
from bayesmesh.running.run_ledger import Ledger
from bayesmesh.stages import analyse
from bayesmesh.store.hashes import write_hashes

CONFIG = {
    "title": "Small", "data": {"source": "digits"}, "model": {"name": "softmax_regression"},
    "kernel": {"name": "hmc"}, "averaging": {},
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> StageSpec:
    return make_spec("average", "small", experiment_class().model_validate(CONFIG), str(tmp_path))


def writing(*names: str) -> Any:
    """Return a `run` that writes some files."""

    def run(self: Averaging, subject: Any, others: Any, files: Mapping[str, Path]) -> str:
        for name in names:
            files[name].mkdir() if name.endswith(".zarr") else files[name].write_text("a\n1\n")
        return "done"

    return run


@pytest.mark.parametrize("word", ["posterior", "data", "verdict"])
def test_results_that_are_read_without_being_declared_are_refused(
    spec: StageSpec, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    layout, declaration = spec.layout, declared("averaging")
    file = {"posterior": layout.posterior / "zarr.json", "data": spec.data_layout.shards / "zarr.json", "verdict": layout.verdict}[word]  # fmt: skip
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    write_hashes(layout.posterior, {})
    for path in (spec.data_layout.sharded, layout.summary, layout.verdict):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    write = writing("scores.csv", "predictions.zarr")

    def run(self: Averaging, subject: Any, others: Any, files: Mapping[str, Path]) -> str:
        file.read_text()
        return str(write(self, subject, others, files))

    monkeypatch.setattr(Averaging, "run", run)
    words = {"posterior", "data", "verdict"}
    monkeypatch.setattr(
        analyse, "analysis_of", lambda stage: declaration.model_copy(update={"reads": tuple(words - {word})})
    )
    with pytest.raises(ConfigError, match=r": read by the analysis 'averaging'") as caught:
        analyse.run(spec, Ledger(Path("unused"), "average"))
    assert f"add '{word}' to `reads`" in caught.value.remedy
    shutil.rmtree(layout.folder / "averaging")
    monkeypatch.setattr(analyse, "analysis_of", lambda stage: declaration.model_copy(update={"reads": (word,)}))
    assert analyse.run(spec, Ledger(Path("unused"), "average")) == "done"
