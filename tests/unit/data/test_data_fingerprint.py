"""Whatever a model can see changes the fingerprint; how it is stored does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayesmesh.data.shards import fingerprint_data

ARRAYS = {"rows/x": np.arange(6, dtype=np.int32).reshape(2, 3), "rows/y": np.zeros((), np.float64)}
DESCRIBED: dict[str, Any] = {"kind": "rows", "columns": {"title": ["a", "b"]}}


@pytest.mark.parametrize(
    ("arrays", "described"),
    [
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"] + np.eye(2, 3, dtype=np.int32)}, DESCRIBED),
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"].astype(np.uint32)}, DESCRIBED),
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"].reshape(3, 2)}, DESCRIBED),
        ({"rows/z": ARRAYS["rows/x"], "rows/y": ARRAYS["rows/y"]}, DESCRIBED),
        ({**ARRAYS, "rows/e": np.empty((0, 2))}, DESCRIBED),
        (ARRAYS, {**DESCRIBED, "columns": {"title": ["b", "a"]}}),
        (ARRAYS, {**DESCRIBED, "kind": "interactions"}),
    ],
)
def test_any_change_shows(arrays: dict[str, np.ndarray], described: dict[str, Any]) -> None:
    assert fingerprint_data(arrays, described) != fingerprint_data(ARRAYS, DESCRIBED)


def test_memory_layout_does_not_show() -> None:
    other = {"rows/y": ARRAYS["rows/y"], "rows/x": np.asfortranarray(ARRAYS["rows/x"]).astype(">i4")}
    assert fingerprint_data(other, DESCRIBED) == fingerprint_data(ARRAYS, DESCRIBED)


def test_the_value_itself_is_fixed() -> None:
    """A change of the method would orphan every chain identity; make it knowingly."""
    assert fingerprint_data(ARRAYS, DESCRIBED).startswith("f93ae98c67aa")
