"""What the configuration checks of a kernel by the texts of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config import config_registry
from bayesmesh.config.config_loading import load_configuration

TEXT = "title: A\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc, num_leapfrog_steps: 3, metric: %s}\n"


def test_a_metric_that_cannot_be_read_concerns_those_alone_who_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_registry, "metric_path", lambda name: tmp_path / f"{name}.py")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [a, b]\n")
    for name, metric, code in (("a", "dense", "class Dense(:\n"), ("b", "identity", "class Identity:\n    pass\n")):
        (tmp_path / "experiments" / f"{name}.yaml").write_text(TEXT % metric)
        (tmp_path / f"{metric}.py").write_text(code)
    found = load_configuration(tmp_path)
    assert (list(found.experiments), list(found.broken)) == (["b"], ["a"])
    assert f"a.yaml: key 'kernel': {tmp_path / 'dense.py'}, line 1: invalid Python" in str(found.broken["a"])
