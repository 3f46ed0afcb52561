"""Scores and predictions in the section: what is not known is left out, what is damaged is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.averaging.scores import COLUMNS
from bayesmesh.analyses.averaging.section import build_section, read_predictions
from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group, write_array


def write_scores(files: dict[str, Path], **values: float) -> None:
    files["scores.csv"].parent.mkdir(parents=True, exist_ok=True)
    row = dict.fromkeys(COLUMNS, 0.5) | {"num_draws": 10.0} | values
    pd.DataFrame([row], columns=COLUMNS).to_csv(files["scores.csv"], index=False)


def test_the_average_is_compared_with_single_draws(files: dict[str, Path]) -> None:
    write_scores(files, single_accuracy=0.5, average_accuracy=0.75)
    section = build_section(files)
    assert section is not None
    assert "25.00 percentage points above" in section.body
    assert [number.value for number in section.numbers] == ["0.7500"]


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
