"""What a gradient is expected to cost, and the rows that are taken at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.config_registry import list_components
from bayesmesh.data.base import FieldSpec
from bayesmesh.sampling.program_costs import LEAST_SECONDS, RATES, TILE_ELEMENTS, expected_seconds, row_tile


def test_a_gradient_is_expected_to_take_the_longer_of_arithmetic_and_memory(
    make_program: Callable[..., Any], make_case: Callable[..., Any]
) -> None:
    mesh = make_program(make_case("gaussian", num_rows=4), "hmc", num_chains=1).mesh
    operations, num_bytes = RATES["cpu"]
    assert expected_seconds({"flops": 2 * operations, "bytes": num_bytes}, mesh) == 2.0
    assert expected_seconds({"flops": operations, "bytes": 3 * num_bytes}, mesh) == 3.0
    assert expected_seconds({"flops": 0.0, "bytes": 0.0}, mesh) == LEAST_SECONDS


@pytest.mark.parametrize("name", list_components("model"))
def test_a_tile_is_as_large_as_memory_allows(make_case, name) -> None:
    case = make_case(name)
    few, many = (row_tile(case.model, case.spec, n, "cpu") for n in (1, 100))
    assert few >= 1
    assert few / 100 - 1 <= many <= few
    assert row_tile(case.model, case.spec, 10_000, "cpu") == pytest.approx(many / 100, abs=1)
    assert row_tile(case.model, case.spec, 1, "gpu") == pytest.approx(
        few * TILE_ELEMENTS["gpu"] / TILE_ELEMENTS["cpu"], rel=0.01
    )
    # Every field of a row has to fit.
    widest = max(np.prod(f.shape, initial=1.0) for f in case.spec.fields.values())
    assert few <= TILE_ELEMENTS["cpu"] / widest


def test_data_count_once_and_what_depends_on_a_chain_for_each(make_case) -> None:
    """Tiles of few rows make narrow matrix products, which take twice the time of wide ones."""
    case = make_case("softmax_regression")
    wide = dataclasses.replace(case.spec, fields={**case.spec.fields, "features": FieldSpec((784,), "uint8")})
    one, sixteen, many = (row_tile(case.model, wide, n, "cpu") for n in (1, 16, 1600))
    assert one == sixteen == TILE_ELEMENTS["cpu"] // 784
    assert many == TILE_ELEMENTS["cpu"] // (1600 * case.spec.constants["num_classes"])


def test_a_tile_is_never_less_than_a_row(make_case) -> None:
    case = make_case("matrix_factorization")
    assert row_tile(case.model, case.spec, 10**9, "cpu") == 1
