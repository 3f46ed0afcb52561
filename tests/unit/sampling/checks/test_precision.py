"""Whole numbers that a device would change are refused, and lost differences are told."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.checks.precision import check_precision, rounded_fields


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
    with pytest.raises(ConfigError, match=r"field 'x' holds .*000,000.* have 32 bits|field 'x' holds 4,294,967,296"):
        check_precision(spec_of(values, num_codes=num_codes), [{"x": values}])
    check_precision(spec_of(values, "float64", num_codes), [{"x": values}])


def test_a_large_offset_is_told(caplog: pytest.LogCaptureFixture) -> None:
    values = 1e8 + np.random.default_rng(0).standard_normal(100)
    with caplog.at_level(logging.WARNING, "bayesmesh"):
        check_precision(spec_of(values), [{"x": values - 1e8}])
        check_precision(spec_of(values, "float64"), [{"x": values}])
        check_precision(spec_of(np.array([2**32 - 1], np.uint32)), [{"x": np.array([2**32 - 1], np.uint32)}])
        assert not caplog.messages
        check_precision(spec_of(values), [{"x": values}])
    assert "float32 rounds the field 'x' by " in caplog.messages[0]
    assert "standardise" in caplog.messages[0]


def test_later_blocks_count(caplog: pytest.LogCaptureFixture) -> None:
    """Of a sorted table, the first rows may be small and alike."""
    small, large = np.zeros(100), 1e8 + np.random.default_rng(0).standard_normal(100)
    check_precision(spec_of(np.zeros(200)), [{"x": small}, {"x": large}])
    assert not caplog.messages  # the differences between the blocks are large
    check_precision(spec_of(np.zeros(200)), [{"x": large[:1]}, {"x": large}])
    assert "float32 rounds the field 'x' by " in caplog.messages[0]
    with pytest.raises(ConfigError, match=r"field 'i' holds 3,000,000,000"):
        check_precision(
            DataSpec(2, {"i": FieldSpec((), "int64")}, {}, "float32"), [{"i": np.array([i])} for i in (1, 3 * 10**9)]
        )


@pytest.mark.parametrize("is_whole", [False, True])
def test_rounding_counts_in_standard_errors(is_whole: bool) -> None:
    """Twice the values at one spacing of float32 have twice the standard errors for four times the rows."""
    errors = {}
    for num_rows in (1_000, 4_000):
        values = 1e6 + np.random.default_rng(0).standard_normal(num_rows)
        stored = values[None] if is_whole else values
        spec = DataSpec(
            len(stored), {"x": FieldSpec(stored.shape[1:], "float64"), "fine": FieldSpec((), "float64")}, {}, "float32"
        )
        errors[num_rows] = rounded_fields(spec, [{"x": stored, "fine": values - 1e6}])["x"]
        assert "fine" not in rounded_fields(spec, [{"x": stored, "fine": values - 1e6}])
        assert not rounded_fields(dataclasses.replace(spec, dtype="float64"), [{"x": stored}])
    assert errors[4_000] / errors[1_000] == pytest.approx(2, rel=0.05)
    # One spacing is 1/16, whose rounding has a standard deviation of 1/16/sqrt(12).
    assert errors[1_000] == pytest.approx(1000**0.5 / 16 / 12**0.5, rel=0.05)
