"""The cost of a gradient: its operations, and contenders that run."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from bayesmesh_reproduction.benchmarks import gradients
from bayesmesh_reproduction.benchmarks.gradients import GradientCase, size_of

CASES: list[GradientCase] = [
    {"model": "softmax_regression", "rows": 48, "columns": 12, "chains": 3, "metric": "none"},
    {"model": "softmax_regression", "rows": 48, "columns": 12, "chains": 3, "metric": "dense"},
    {"model": "matrix_factorization", "rows": 24, "columns": 36, "chains": 2, "metric": "none"},
]


def products(case: GradientCase) -> float:
    """Operations of the products of a gradient, one by one."""
    rows, columns, chains, of_metric = case["rows"], case["columns"], case["chains"], 0.0
    if case["model"] == "softmax_regression":
        inputs, weights, outputs = np.ones((rows, columns + 1)), np.ones((columns + 1, 10)), np.ones((rows, 10))
        pairs = [(inputs, weights), (inputs.T, outputs)]
        if case["metric"] == "dense":
            # With a triangle and with its transpose, each of its numbers once for a chain.
            of_metric = 2 * 2.0 * np.count_nonzero(np.tri(weights.size))
    else:
        users, films, cells = np.ones((rows, 20)), np.ones((columns, 20)), np.ones((rows, columns))
        pairs = [(users, films.T), (cells, films), (cells.T, users)]
    return chains * (of_metric + sum(2.0 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in pairs))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations_are_those_of_the_products(case) -> None:
    assert size_of(case).operations == products(case)


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_a_gradient_is_evaluated_as_often_as_said(case) -> None:
    work = gradients.Gradient()
    facts = work.prepare(case)
    assert facts["num_devices"] == 1, "the gradient is too short for several cores"
    assert work.run(0) == {}
    found = work._evaluate(work._at, work._data, work._metric)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    assert all(leaf.shape[0] == case["chains"] for leaf in jax.tree.leaves(found))


def test_products_have_as_many_operations_as_the_case() -> None:
    case: GradientCase = {"model": "softmax_regression", "rows": 4800, "columns": 99, "chains": 16, "metric": "none"}
    work = gradients.Products()
    facts = work.prepare(case)
    done = 2.0 * int(facts["side"]) ** 3 * int(facts["count"]) * int(facts["num_devices"])
    np.testing.assert_allclose(done, gradients.REPEATS * size_of(case).operations, rtol=0.02)
    assert work.run(0) == {}


def test_reading_reads_every_number_each_time() -> None:
    work = gradients.Reading()
    work.prepare(CASES[0])
    assert work.run(0) == {}
    np.testing.assert_allclose(work._read(work._numbers), 2.0**gradients.REPEATS, rtol=1e-5)
