"""Predictions from Python read what the verb writes, and refuse what it cannot take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.notebook.predictions import predictions_for, read_predictions
from bayesmesh.store.layout import ExperimentLayout


@pytest.mark.parametrize(
    ("cells", "expected"),
    [(["01", "None"], ["01", "None"]), (["1", "NA"], ["1", "NA"]), (["0", "12"], [0, 12])],
)
def test_names_of_classes_keep_their_text(tmp_path: Path, cells: list[str], expected: list[Any]) -> None:
    file = tmp_path / "predicted.csv"
    rows = "".join(f"{i + 1},{cell},0.5,0.25,0.75\n" for i, cell in enumerate(cells))
    file.write_text(f"row,kind,probability[x],low[x],high[x]\n{rows}")
    found = read_predictions(file)
    assert found["kind"].tolist() == expected
    assert found["probability[x]"].tolist() == [0.5, 0.5]


def test_numbers_that_are_not_predicted_are_missing(tmp_path: Path) -> None:
    file = tmp_path / "predicted.csv"
    file.write_text("row,y_mean,mean_low,mean_high,y_low,y_high\n1,2.5,2.0,3.0,,\n")
    found = read_predictions(file)
    assert found["y_mean"].tolist() == [2.5]
    assert found[["y_low", "y_high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("table", "interval", "message"),
    [
        ("new.csv", 0.9, "expected a pandas data frame, found str"),
        (pd.DataFrame({"x": [1]}), 1.5, "interval=1.5: expected a probability"),
    ],
)
def test_other_arguments_are_refused(tmp_path: Path, table: Any, interval: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predictions_for(ExperimentLayout(tmp_path, "flats"), table, interval, new_levels=False)
