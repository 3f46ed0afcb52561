"""What may stand in a field."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.data.base import Variable
from bayesmesh.data.row_values import check_values
from bayesmesh.errors import DataError

SOIL = Variable("category", ("clay", "sand"))


@pytest.mark.parametrize(
    ("block", "about", "said"),
    [
        (
            np.array([0, 2], np.uint8),
            SOIL,
            "rows/soil: row 42, counted from 1: 2 is not the code of a level; the column has codes 0 to 1",
        ),
        (np.array([-1, 0]), SOIL, "row 41, counted from 1: -1 is not the code"),
        (np.array([1.0, 0.5]), SOIL, "row 42, counted from 1: 0.5 is not the code"),
        (np.array([0.0, np.inf]), SOIL, "row 42, counted from 1: a value is not finite"),
        (np.array([[0.0, np.nan]], np.float32), None, "row 41, counted from 1: a value is not finite"),
    ],
)
def test_others_are_named_by_their_row(block: np.ndarray, about: Variable | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_values("rows/soil", 40, block, about)
