"""Each of many datasets has a verdict of its own, the one that it would have alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics import datasets as module
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ExperimentLayout

CHAINS, DRAWS, DATASETS = 4, 401, 3


def drawn(seed: int, *event: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, *event))


def write(path: Path, groups: dict[str, dict[str, np.ndarray]], number: int | None = None) -> Path:
    """Write a posterior of all datasets, or of one alone."""
    root = open_group(path, "w")
    for group_name, arrays in groups.items():
        group = root.create_group(group_name)
        lead = ("dataset",) if number is None else ()
        if number is None:
            write_array(group, "dataset", np.array([10, 20, 30]), ["dataset"])
        for name, values in arrays.items():
            values = values if number is None else values[:, :, number]
            own = (f"{name}_dim_{i}" for i in range(values.ndim - 2 - len(lead)))
            write_array(group, name, values, ("chain", "draw", *lead, *own))
    return path


@pytest.fixture
def groups() -> dict[str, dict[str, np.ndarray]]:
    """The first dataset is well, the second has one chain apart, the third no finite log density."""
    lp, mean = drawn(0, DATASETS), drawn(1, DATASETS, 2)
    mean[0, :, 1] += 3
    lp[:, :, 2] = np.nan
    stats = {"lp": lp, "energy": drawn(2, DATASETS), "diverging": np.zeros((CHAINS, DRAWS, DATASETS), bool)}
    return {"summaries": {"log_density": lp, "mean": mean}, "posterior": {"mean": mean}, "sample_stats": stats}


def test_each_dataset_has_the_gates_that_it_has_alone(
    groups: dict[str, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    layout = ExperimentLayout(tmp_path / "many", "many")
    verdict = diagnose(write(tmp_path / "many.zarr", groups), GateSettings(), layout)
    assert (verdict.verdict, verdict.datasets) == ("fail", {"fail": 2, "warn": 0, "pass": 1})
    assert json.loads(layout.verdict.read_text())["datasets"] == {"fail": 2, "warn": 0, "pass": 1}
    table = pd.read_csv(layout.verdicts, keep_default_na=True)
    assert table["dataset"].tolist() == [10, 20, 30]
    assert table["verdict"].tolist() == ["pass", "fail", "fail"]
    assert table["missed"].tolist()[2].split()[0] == "finite"
    for number in range(DATASETS):
        own = ExperimentLayout(tmp_path / "alone", f"alone-{number}")
        alone = diagnose(write(tmp_path / f"{number}.zarr", groups, number), GateSettings(), own)
        row = table.iloc[number]
        missed = [gate.name for gate in alone.gates if gate.verdict != "pass"]
        assert row["verdict"] == alone.verdict
        assert (row["missed"] if isinstance(row["missed"], str) else "").split() == missed
        for name in ("r_hat", "ess_bulk", "bfmi"):
            np.testing.assert_allclose(row[name], alone.gate(name).value, rtol=1e-12, err_msg=f"{number} {name}")
        assert not own.verdicts.exists()
    worst = verdict.gate("finite")
    assert worst.where.startswith("dataset 30, log_density")
    assert worst.message.startswith("1 of 3 datasets misses it; the worst is dataset 30: ")
