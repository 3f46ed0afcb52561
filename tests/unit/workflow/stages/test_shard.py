"""Data that cannot be sharded are refused with the source, what is wrong and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bayesmesh.cli import main
from bayesmesh.data.base import Dataset
from bayesmesh.data.sources import gaussian
from hostile import EXPERIMENT

X = np.zeros((5, 2))


@pytest.fixture
def shard_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the command line on what a source reads, and gives the exit code and what it said."""

    def run(read: Any, **data: Any) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "config" / "experiments").mkdir(parents=True)
        (tmp_path / "config" / "config.yaml").write_text("experiments: [mine]\n")
        experiment = {**EXPERIMENT, "model": {"name": "gaussian"}, "data": {"source": "gaussian", **data}}
        (tmp_path / "config" / "experiments" / "mine.yaml").write_text(yaml.safe_dump(experiment))
        if read is not None:
            monkeypatch.setattr(gaussian.Source, "read", lambda *_: read())
        assert main(["fetch", "--experiment", "mine"]) == 0
        return main(["shard", "--experiment", "mine"]), capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ({"x": X[:0]}, {}, "the dataset has no rows"),
        ({}, {}, "the dataset has no rows"),
        ({"x": X[:, :0]}, {}, "rows/x: has shape (5, 0), with an empty axis"),
        ({"x": [1.0, 2.0]}, {}, "rows/x: not an array of numbers with one entry per row, but list"),
        ({"x": np.array(["a", "b"])}, {}, "rows/x: not an array of numbers with one entry per row, but <U1 of shape (2,)"),
        ({"x": np.array(["a", None])}, {}, "but object of shape (2,)"),
        ({"x": np.float64(3)}, {}, "rows/x: not an array of numbers with one entry per row, but float64"),
        ({"x": X + 1j}, {}, "but complex128"),
        ({"x": X / np.where(np.arange(5) == 3, np.nan, 1)[:, None]}, {}, "rows/x: row 4, counted from 1: a value is not finite"),
        ({"x": X, "y": X[:4]}, {}, "fields of rows have unequal lengths: {'x': 5, 'y': 4}"),
        ({"x": X}, {"constants": {"noise_scale": "1"}}, "constant 'noise_scale' is not a finite number but '1'"),
        ({"x": X}, {"constants": {"noise_scale": float("inf")}}, "constant 'noise_scale' is not a finite number but inf"),
        ({"x": X}, {"declared_counts": {"rows": 6}}, "rows: expected 6, found 5"),
    ],
)  # fmt: skip
def test_a_dataset_that_is_not_valid_is_refused(shard_data: Any, rows: Any, more: Any, said: str) -> None:
    code, output = shard_data(lambda: Dataset(rows=rows, **more))
    assert code == 3
    assert "error: source 'gaussian': " in output
    assert said in output
    assert "remedy: " in output
    assert "Traceback" not in output
