"""What is computed from draws once sampling is over: bounded, and equal to direct evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.analyses._draw_blocks import PriorDraws
from bayesmesh.sampling.density import summaries as module
from bayesmesh.sampling.density.summaries import (
    Extent,
    derive,
    derive_prior,
    lower_derived,
    spread_evenly,
    summaries_at_truth,
)
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from rows_in_memory import Rows

CHAINS, DRAWS = 2, 5
MODELS = ["gaussian", "softmax_regression", "matrix_factorization"]


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, make_case: Callable[..., Any]) -> Any:
    return make_case(request.param, "float32")


@pytest.fixture(scope="module")
def posterior(case: Any, tmp_path_factory: pytest.TempPathFactory) -> Posterior:
    """Draws from the prior, in place of a posterior."""
    prior, folder = case.model.prior(case.spec), tmp_path_factory.mktemp(case.name)
    # As one program: operation by operation it would be a dozen.
    drawn = jax.device_get(jax.jit(lambda key: prior.sample((CHAINS, DRAWS), seed=key))(jax.random.key(1)))
    group = open_group(folder / "posterior.zarr", "w").create_group("posterior")
    for name, value in drawn.items():
        write_array(group, name, value, (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(value.ndim - 2))))
    return open_posterior(folder / "posterior.zarr")


@pytest.fixture(scope="module")
def whole(case: Any, posterior: Posterior) -> dict[str, dict[str, np.ndarray]]:
    """All that is derived, with room for every row."""
    return derive(case.model, case.spec, Rows(case.rows), posterior, 2, 10**9)


def test_programs_that_are_compiled_ahead_are_those_that_run(
    case: Any, posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    latents = {name: jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for name, array in arrays.items()}
    rows, run, compiled = Rows(case.rows), list[str](), module.compiled_for_blocks

    def spied(*of: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            run.append(compiled(*of).lower(*arguments).as_text())
            return compiled(*of)(*arguments)

        return call

    extent = Extent(CHAINS, DRAWS, 2, 10**9)
    texts = [program.as_text() for program in lower_derived(case.model, case.spec, rows, latents, extent)]
    monkeypatch.setattr(module, "compiled_for_blocks", spied)
    derive(case.model, case.spec, rows, posterior, 2, 10**9)
    assert run == texts
    assert len(run) == 3


def test_summaries_at_the_truth_are_those_of_a_draw_that_equals_it(
    case: Any, posterior: Posterior, whole: dict[str, dict[str, np.ndarray]]
) -> None:
    rows = Rows(case.rows)
    truth = {name: np.asarray(posterior.array("posterior", name)[1, 2], np.float64) for name in posterior.latents}
    rows.truth = lambda: truth  # type: ignore[attr-defined]
    found = summaries_at_truth(case.model, case.spec, rows, posterior, 2)
    assert found.keys() == whole["summaries"].keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, whole["summaries"][name][1, 2], rtol=1e-5, atol=1e-5)
    rows.truth = lambda: {name: value[None] for name, value in truth.items()}  # type: ignore[attr-defined]
    assert summaries_at_truth(case.model, case.spec, rows, posterior, 2) == {}, "another model's"


@pytest.mark.parametrize("total", [1, 2, 7, 100, 60_000])
@pytest.mark.parametrize("wanted", [1, 2, 3, 50, 99, 1000])
def test_numbers_are_spread_evenly(total: int, wanted: int) -> None:
    found = spread_evenly(total, wanted)
    assert len(found) == min(total, wanted)
    assert found[0] == 0
    assert found.max() <= total - 1
    steps = np.diff(found)
    if len(found) > 1:
        assert found[-1] == total - 1
        assert steps.min() >= 1
        assert steps.max() - steps.min() <= 1


def evaluate(case: Any, posterior: Posterior, rows: np.ndarray, function: str) -> dict[str, np.ndarray]:
    """Evaluate a method of the model one draw at a time: name -> (chain, draw, ...)."""
    data = {k: v[rows] for k, v in case.arrays.items()}
    latents = {name: posterior.array("posterior", name)[...] for name in posterior.latents}
    function_of_model = jax.jit(getattr(case.model, function))
    found: list[list[Any]] = [[None] * DRAWS for _ in range(CHAINS)]
    for chain in range(CHAINS):
        for draw in range(DRAWS):
            one = {k: jax.numpy.asarray(v[chain, draw]) for k, v in latents.items()}
            one = {
                k: v.take(rows, axis=case.model.local_latents[k]) if k in case.model.local_latents else v
                for k, v in one.items()
            }
            value = function_of_model(one, data)
            found[chain][draw] = value if isinstance(value, dict) else {"y": value}
    return {name: np.array([[d[name] for d in chain] for chain in found]) for name in found[0][0]}


def test_values_are_those_of_direct_evaluation(case: Any, posterior: Posterior) -> None:
    derived = derive(case.model, case.spec, Rows(case.rows), posterior, 4, 10**7)
    probes = spread_evenly(case.spec.num_rows, 4)
    summaries = evaluate(case, posterior, probes, "summaries")
    assert set(derived["summaries"]) == set(summaries)
    for name, expected in summaries.items():
        np.testing.assert_allclose(derived["summaries"][name], expected, rtol=1e-5, atol=1e-5)
    every_row = np.arange(case.spec.num_rows)
    outcome = case.model.outcome({k: jax.numpy.asarray(v) for k, v in case.rows.items()})
    np.testing.assert_array_equal(derived["observed_data"]["row"], every_row)
    np.testing.assert_array_equal(derived["observed_data"]["y"], np.asarray(outcome))
    expected = evaluate(case, posterior, every_row, "log_likelihood")["y"]
    assert expected.shape == (CHAINS, DRAWS, case.spec.num_rows)
    np.testing.assert_allclose(derived["log_likelihood"]["y"], expected, rtol=1e-5, atol=1e-4)
    predicted = derived["posterior_predictive"]["y"]
    assert predicted.shape == (CHAINS, DRAWS, *derived["observed_data"]["y"].shape)
    assert predicted.dtype == derived["observed_data"]["y"].dtype
    assert len(np.unique(predicted.reshape(CHAINS * DRAWS, -1), axis=0)) > 1, "every draw has its own randomness"


def test_groups_of_the_prior_have_the_draws_of_the_check(case: Any) -> None:
    """Seventy draws are one chunk and a part of the next."""
    numbers, of_check = np.array([0, 2]), PriorDraws("", case.model, case.spec, 70)
    derived = derive_prior(case.model, case.spec, Rows(case.rows), of_check.chunks(), numbers)
    (_, _, first), (_, count, last) = of_check.chunks()
    assert derived["prior"].keys() == first.keys()
    for name, values in derived["prior"].items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], last[name][:count]])[None])
    outcome = case.model.outcome({k: jax.numpy.asarray(v[numbers]) for k, v in case.rows.items()})
    simulated = derived["prior_predictive"]["y"]
    assert simulated.shape == (1, 70, *outcome.shape)
    assert len(np.unique(simulated[0].reshape(70, -1), axis=0)) > 1


@pytest.mark.parametrize("share", [1.0, 0.13, 1e-9])
def test_pointwise_groups_keep_to_their_bytes(case: Any, posterior: Posterior, whole: Any, share: float) -> None:
    groups = ("log_likelihood", "posterior_predictive")
    limit = share * max(whole[group]["y"].nbytes for group in groups)
    derived = derive(case.model, case.spec, Rows(case.rows), posterior, 2, limit)
    if share < 1e-6:
        assert set(derived) == {"summaries", "fixed"}
        return
    rows = derived["observed_data"]["row"]
    assert max(derived[group]["y"].nbytes for group in groups) <= limit
    # And no row fewer than the bound allows.
    assert len(rows) == int(share * case.spec.num_rows + 1e-9)
    np.testing.assert_array_equal(rows, spread_evenly(case.spec.num_rows, len(rows)))
    np.testing.assert_allclose(
        derived["log_likelihood"]["y"], whole["log_likelihood"]["y"][:, :, rows], rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("case", ["softmax_regression"], indirect=True)
def test_size_of_blocks_changes_nothing(case: Any, posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """Randomness follows the draw and not the block that it was read in."""
    at_once = derive(case.model, case.spec, Rows(case.rows), posterior, 4, 10**7)
    monkeypatch.setattr(Posterior, "blocks", functools.partialmethod(Posterior.blocks, block_bytes=1))
    one_by_one = derive(case.model, case.spec, Rows(case.rows), posterior, 4, 10**7)
    np.testing.assert_array_equal(one_by_one["posterior_predictive"]["y"], at_once["posterior_predictive"]["y"])
    np.testing.assert_allclose(one_by_one["log_likelihood"]["y"], at_once["log_likelihood"]["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["gaussian"], indirect=True)
def test_outcomes_do_not_depend_on_how_many_are_simulated_together(
    case: Any, posterior: Posterior, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of ten draws at a time, so that parts do not fill the block."""
    of_draw = whole["posterior_predictive"]["y"][0, 0].size
    assert CHAINS * DRAWS * of_draw < module._SIMULATED_TOGETHER
    monkeypatch.setattr(module, "_SIMULATED_TOGETHER", 3 * of_draw)
    found = derive(case.model, case.spec, Rows(case.rows), posterior, 2, 10**9)
    np.testing.assert_array_equal(found["posterior_predictive"]["y"], whole["posterior_predictive"]["y"])
