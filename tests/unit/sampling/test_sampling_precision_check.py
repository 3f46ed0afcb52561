"""Whole numbers that a device would change are refused, and lost differences are told."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.sampling_precision_check import check_precision


def spec_of(values: np.ndarray, dtype: str = "float32", num_codes: int = 0) -> DataSpec:
    return DataSpec(len(values), {"x": FieldSpec((), values.dtype.name, num_codes)}, {}, dtype)


@pytest.mark.parametrize(
    ("values", "num_codes"),
    [
        (np.array([1, 3_000_000_000]), 0),
        (np.array([-3_000_000_000, 1]), 0),
        (np.array([1, 2]), 3_000_000_001),
        (np.array([2**32], np.uint64), 0),
    ],
)
def test_whole_numbers_that_would_wrap_around_are_refused(values: np.ndarray, num_codes: int) -> None:
    """A row behind the first ones is known by the number of codes."""
    with pytest.raises(ConfigError, match=r"field 'x' holds .*000,000.* have 32 bits|field 'x' holds 4,294,967,296"):
        check_precision(spec_of(values, num_codes=num_codes), {"x": values})
    check_precision(spec_of(values, "float64", num_codes), {"x": values})


def test_a_large_offset_is_told(caplog: pytest.LogCaptureFixture) -> None:
    values = 1e8 + np.random.default_rng(0).standard_normal(100)
    with caplog.at_level(logging.WARNING, "bayesmesh"):
        check_precision(spec_of(values), {"x": values - 1e8})
        check_precision(spec_of(values, "float64"), {"x": values})
        check_precision(spec_of(np.array([2**32 - 1], np.uint32)), {"x": np.array([2**32 - 1], np.uint32)})
        assert not caplog.messages
        check_precision(spec_of(values), {"x": values})
    assert "field 'x' loses" in caplog.messages[0]
    assert "standardise" in caplog.messages[0]
