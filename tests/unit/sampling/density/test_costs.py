"""What a gradient is expected to cost, and the rows that are taken at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.data.base import FieldSpec
from bayesmesh.sampling.density.costs import (
    LEAST_SECONDS,
    RATES,
    TILE_ELEMENTS,
    Cost,
    cost_of_gradient,
    cost_with_loops,
    expected_seconds,
    largest_array,
    most_elements,
    row_tile,
)
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows


def test_a_gradient_is_expected_to_take_the_longer_of_arithmetic_and_memory(
    make_program: Callable[..., Any], make_case: Callable[..., Any]
) -> None:
    mesh = make_program(make_case("gaussian", num_rows=4), "hmc", num_chains=1).mesh
    operations, num_bytes = RATES["cpu"]
    assert expected_seconds(Cost(2 * operations, num_bytes, 1, True), mesh) == 2.0
    assert expected_seconds(Cost(operations, 3 * num_bytes, 1, True), mesh) == 3.0
    assert expected_seconds(Cost(0.0, 0.0, 1, True), mesh) == LEAST_SECONDS


def recursion(length: int, inner: int = 1) -> Callable[[jax.Array], jax.Array]:
    """A matrix that is multiplied by its sine `length` times `inner` times, in two loops."""

    def often(body: Callable[[Any], Any], count: int, start: Any) -> Any:
        return jax.lax.scan(lambda x, _: (body(x), None), start, None, length=count)[0]

    return lambda x: often(lambda y: often(lambda z: z @ jnp.sin(z), inner, y), length, x)


def cost_of(function: Callable[[jax.Array], jax.Array]) -> tuple[float, float]:
    traced = jax.jit(function).trace(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    return cost_with_loops(traced.jaxpr, traced.lower().cost_analysis())


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    once = cost_of(lambda x: x @ jnp.sin(x))
    flops, num_bytes = cost_of(recursion(100))
    assert flops == pytest.approx(100 * once[0], rel=0.1)
    assert num_bytes == pytest.approx(100 * once[1], rel=0.5)
    assert cost_of(recursion(10, inner=10))[0] == pytest.approx(flops, rel=0.1)
    assert cost_of(lambda x: jax.jit(recursion(100))(x))[0] == pytest.approx(flops, rel=0.1), "within another function"
    for length, unroll in ((10, 10), (100, 5), (103, 5)):
        unrolled = cost_of(
            lambda x, length=length, unroll=unroll: jax.lax.scan(
                lambda z, _: (z @ jnp.sin(z), None), x, None, length=length, unroll=unroll
            )[0]
        )
        assert unrolled[0] == pytest.approx(length * once[0], rel=0.03)
    traced = jax.jit(lambda x: x @ x).trace(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    found = traced.lower().cost_analysis()
    assert cost_with_loops(traced.jaxpr, found) == (found["flops"], found["bytes accessed"])


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


def cost_of_rows(function: Callable[..., Any], make_case: Any, num_rows: int = 40) -> Cost:
    """Return the cost of a model whose likelihood is a function of its latents and rows, one of them a vector."""
    case = make_case("gaussian", num_rows=num_rows)

    class Changed(case.model_class):  # type: ignore[misc, name-defined]
        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            return function(super().log_likelihood(latents, rows))

    model = Changed(case.options, case.spec)
    return cost_of_gradient(Target(model, case.spec, lay_out_rows(num_rows, 1, num_rows)), 4)


@pytest.mark.parametrize(
    ("function", "is_counted"),
    [
        (lambda x: x, True),
        (lambda x: jax.lax.scan(lambda c, v: (c + v, c), 0.0 * x[0], x)[1], True),
        (jnp.sort, False),
        (lambda x: x * jnp.linalg.det(jnp.eye(3, dtype=x.dtype) + x[0] ** 2), False),
    ],
)
def test_what_the_analysis_does_not_see_is_not_counted(make_case, function, is_counted: bool) -> None:
    """A gradient that may take longer than XLA's count says is measured."""
    assert cost_of_rows(function, make_case).is_counted == is_counted


def test_few_rows_are_one_tile_as_row_tile_would_say(make_case) -> None:
    for name in list_components("model"):
        case = make_case(name)
        num_rows = case.spec.num_rows
        target = Target(case.model, case.spec, lay_out_rows(num_rows, 1, num_rows))
        if largest_array(target, 4) <= most_elements("cpu") and not case.spec.entry_counts:
            assert row_tile(case.model, case.spec, 4, "cpu") >= num_rows, name
