"""Scores and predictions in the section: what is not known is left out, what is damaged is named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.averaging.average_scores import COLUMNS
from bayesmesh.analyses.averaging.section import build_section, read_predictions
from bayesmesh.errors import StoreError
from bayesmesh.store.zarr_arrays import open_group, write_array


def write_scores(files: dict[str, Path], **values: float) -> None:
    files["scores.csv"].parent.mkdir(parents=True, exist_ok=True)
    row = dict.fromkeys(COLUMNS, 0.5) | {"num_draws": 10.0} | values
    pd.DataFrame([row], columns=COLUMNS).to_csv(files["scores.csv"], index=False)


def test_the_average_is_compared_with_single_draws(files: dict[str, Path]) -> None:
    write_scores(files, single_accuracy=0.5, average_accuracy=0.75, gain_accuracy_se=0.01, average_accuracy_se=0.004)
    section = build_section(files)
    assert section is not None
    assert "25.00 ± 1.00 percentage points above" in section.body
    assert [number.value for number in section.numbers] == ["0.7500 ± 0.0040"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(0.02, "not clearly different (in percentage points: +3.00 ± 2.00)"), (np.nan, "+3.00, error not known")],
)
def test_a_gain_within_its_error_is_not_called_one(files: dict[str, Path], error: float, said: str) -> None:
    write_scores(files, single_accuracy=0.5, average_accuracy=0.53, gain_accuracy_se=error)
    section = build_section(files)
    assert section is not None
    assert said in section.body
    assert "above" not in section.body


def test_a_calibration_that_got_worse_is_marked(files: dict[str, Path]) -> None:
    changes = {"log_score": 0.1, "brier": -0.1, "ece": 0.03, "accuracy": 0.01}
    values = {f"average_{name}": 0.5 + change for name, change in changes.items()}
    write_scores(files, **values, **{f"gain_{name}_se": 0.012 for name in changes})
    section = build_section(files)
    assert section is not None
    found = re.findall(
        r'<tr class="(\w*)"><th scope="row">([^<]*)<br><span class="note">([^<]*)</span></th>', section.body
    )
    assert found == [
        ("", "Accuracy", "no clear difference"),
        ("", "Log score", "better"),
        ("", "Brier score", "better"),
        ("warn", "Calibration error", "worse"),
    ]


@pytest.mark.parametrize(("missing", "shown"), [("single_accuracy", 1), ("average_accuracy", 0)])
def test_an_accuracy_that_is_not_known_is_left_out(files: dict[str, Path], missing: str, shown: int) -> None:
    write_scores(files, **{missing: np.nan})
    section = build_section(files)
    assert section is not None
    assert "percentage points" not in section.body
    assert len(section.numbers) == shown


def test_probabilities_have_rows_and_classes(files: dict[str, Path]) -> None:
    path = files["predictions.zarr"]
    root = open_group(path, "w")
    write_array(root, "probabilities", np.full((5,), 0.5), ("row",))
    write_array(root, "label", np.zeros(5, np.int64), ("row",))
    with pytest.raises(StoreError, match=r"predictions\.zarr: 'probabilities' should have the axes row and class"):
        read_predictions(path)
