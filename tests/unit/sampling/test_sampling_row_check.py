"""Rows do not know of each other, and the fast path of a likelihood is the plain one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.config_registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.sampling_row_check import check_rows

AT = [0, 17, 36]


def three(case: Any) -> dict[str, np.ndarray]:
    return {name: values[AT] for name, values in case.rows.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list_components("model"))
def test_a_model_of_the_registry_is_accepted(make_case: Any, name: str, dtype: str) -> None:
    case = make_case(name, dtype)
    check_rows(case.model_class, case.options, case.spec, three(case))


def test_a_density_of_zero_at_the_point_is_left_to_the_starts(make_case: Any) -> None:
    case = make_case("gaussian", "float64")

    class Impossible(case.model_class):  # type: ignore[misc, name-defined]
        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            values = super().log_likelihood(latents, rows)
            return jnp.where(jnp.arange(len(values)) >= 0, -jnp.inf, values)

    check_rows(Impossible, case.options, case.spec, three(case))


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
