"""Rows do not know of each other, and the fast path of a likelihood is the plain one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.checks.rows import check_fast_path, check_rows, choose_rows

AT = [0, 17, 36]


def three(case: Any) -> dict[str, np.ndarray]:
    return {name: values[AT] for name, values in case.rows.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list_components("model"))
def test_a_model_of_the_registry_is_accepted(make_case: Any, name: str, dtype: str) -> None:
    case = make_case(name, dtype)
    check_rows(case.model_class, case.options, case.spec, three(case))


def shifted_in_a_ring(values: Any, lag: int) -> Any:
    return jnp.roll(values, lag, axis=0)


def shifted_with_zeros(values: Any, lag: int) -> Any:
    return jnp.pad(values, ((lag, 0), (0, 0)))[: len(values)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [shifted_in_a_ring, shifted_with_zeros])
@pytest.mark.parametrize("lag", [1, 6, 12, 24, 168, 365])
def test_a_model_that_reads_the_row_a_season_before_is_refused(
    make_case: Any, dtype: str, shift: Any, lag: int
) -> None:
    case = make_case("gaussian", dtype)
    (field,) = case.rows
    values = np.random.default_rng(0).standard_normal((2000, *case.rows[field].shape[1:]))

    class Seasonal(case.model_class):  # type: ignore[misc, name-defined]
        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            return super().log_likelihood(latents, {field: rows[field] - 0.1 * shift(rows[field], lag)})

    rows = choose_rows(0, 2000, case.spec, lambda first, end: {field: values[first:end]})
    check_rows(case.model_class, case.options, case.spec, rows)
    with pytest.raises(ConfigError, match=r"the value of a row changes with the rows beside it: .* among 509 rows"):
        check_rows(Seasonal, case.options, case.spec, rows)


def mean_over_rows(model: Any, latents: Any, rows: Any) -> Any:
    values = type(model).__mro__[1].log_likelihood(model, latents, rows)
    return values - values.mean()


def sum_in_every_row(model: Any, latents: Any, rows: Any) -> Any:
    values = type(model).__mro__[1].log_likelihood(model, latents, rows)
    return jnp.full_like(values, values.sum())


def padding_counts(model: Any, latents: Any, rows: Any, is_row: Any) -> Any:
    plain = type(model).__mro__[1].log_likelihood_and_gradient
    return plain(model, latents, rows, jnp.ones_like(is_row))


def twice_the_slope(model: Any, latents: Any, rows: Any, is_row: Any) -> Any:
    value, gradient = type(model).__mro__[1].log_likelihood_and_gradient(model, latents, rows, is_row)
    return value, {name: 2 * slope for name, slope in gradient.items()}


def not_a_number(model: Any, latents: Any, rows: Any, is_row: Any) -> Any:
    value, gradient = type(model).__mro__[1].log_likelihood_and_gradient(model, latents, rows, is_row)
    return value * jnp.nan, gradient


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_statistic_that_one_row_decides_is_seen_wherever_it_lies(make_case: Any, place: int) -> None:
    """Such as the largest of times, which lies in the last row of a sorted table."""
    case = make_case("gaussian", "float32")
    (field,) = case.rows

    class Largest(case.model_class):  # type: ignore[misc, name-defined]
        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            return super().log_likelihood(latents, rows) * rows[field][:, 0] / rows[field].max()

    sizes = np.where(np.arange(3) == place, 2.0, [0.5, 1.0, 1.5])
    rows = {field: np.broadcast_to(sizes[:, None], (3, case.rows[field].shape[1])).astype(np.float64)}
    with pytest.raises(ConfigError, match="the value of a row changes with the rows beside it"):
        check_rows(Largest, case.options, case.spec, rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        ("log_likelihood", mean_over_rows, "the value of a row changes with the rows beside it"),
        ("log_likelihood", sum_in_every_row, "the value of a row changes with the rows beside it"),
        ("log_likelihood_and_gradient", padding_counts, "its value is not that of the sum"),
        ("log_likelihood_and_gradient", not_a_number, "its value is not that of the sum"),
        ("log_likelihood_and_gradient", twice_the_slope, "its gradient by '.*' is not that of the sum"),
    ],
)
def test_a_model_of_the_wrong_posterior_is_refused(
    make_case: Any, dtype: str, method: str, wrong: Any, message: str
) -> None:
    case = make_case("softmax_regression", dtype)
    model_class = type("Wrong", (case.model_class,), {method: wrong})
    with pytest.raises(ConfigError, match=f"{wrong.__name__}.*{message}"):
        check_rows(model_class, case.options, case.spec, three(case))


def test_only_a_fast_path_is_compared_with_a_gradient(make_case: Any) -> None:
    case = make_case("gaussian", "float32")

    class NoGradient(case.model_class):  # type: ignore[misc, name-defined]
        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            @jax.custom_jvp
            def same(values: Any) -> Any:
                return values

            @same.defjvp
            def fail(primals: Any, tangents: Any) -> Any:
                raise AssertionError("a gradient")

            return same(super().log_likelihood(latents, rows))

    class WithFastPath(NoGradient):
        def log_likelihood_and_gradient(self, latents: Any, rows: Any, is_row: Any) -> Any:
            return super().log_likelihood_and_gradient(latents, rows, is_row)

    check_rows(NoGradient, case.options, case.spec, three(case))
    with pytest.raises(ConfigError, match="a gradient"):
        check_rows(WithFastPath, case.options, case.spec, three(case))


@pytest.mark.parametrize("wrong", [not_a_number, twice_the_slope])
def test_the_fast_path_of_data_that_are_one_row_is_compared_too(make_case: Any, wrong: Any) -> None:
    case = make_case("hidden_markov", "float32")
    rows = {name: values[:1] for name, values in case.rows.items()}
    check_fast_path(case.model_class, case.options, case.spec, rows)
    model_class = type("Wrong", (case.model_class,), {"log_likelihood_and_gradient": wrong})
    with pytest.raises(ConfigError, match=f"{wrong.__name__}.*is not that of the sum"):
        check_fast_path(model_class, case.options, case.spec, rows)
