"""What float32 adds to the log likelihood of stored draws."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks import rounding
from bayesmesh.sampling.checks.rounding import is_compared, is_lost, likelihood_rounding
from bayesmesh.sampling.density.summaries import spread_evenly
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, TOTAL
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from rows_in_memory import Rows

CHAINS, DRAWS = 2, 40


class Durations(Model):
    """Normal durations, as differences of two times; only its likelihood is asked for."""

    pretty_name = "Durations"
    offers = ()
    prior = predict = summaries = None  # type: ignore[assignment]

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return -0.5 * (rows["end"] - rows["start"] - latents["mean"]) ** 2


def store(folder: Path, draws: dict[str, np.ndarray], log_likelihood: np.ndarray) -> Posterior:
    root = open_group(folder / "posterior.zarr", "w")
    group = root.create_group("posterior")
    for name, value in draws.items():
        write_array(group, name, value, (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(value.ndim - 2))))
    write_array(root.create_group("sample_stats"), TOTAL, log_likelihood, (CHAIN, DRAW))
    return open_posterior(folder / "posterior.zarr")


def as_sampled(model: Model, draws: Any, rows: dict[str, np.ndarray], entries: np.ndarray, dtype: str) -> np.ndarray:
    """The log likelihood of each draw in a dtype, summed over rows in float64."""
    given = {k: jnp.asarray(v, dtype if v.dtype.kind == "f" else v.dtype) for k, v in rows.items()}
    aligned = {k: np.take(draws[k], entries, axis=2 + axis) for k, axis in model.local_latents.items()}
    latents = {k: jnp.asarray(v, dtype) for k, v in {**draws, **aligned}.items()}
    of_draw = jax.jit(jax.vmap(jax.vmap(lambda each: model.log_likelihood(each, given))))
    return np.asarray(of_draw(latents), np.float64).sum(-1)


def times(count: int) -> tuple[DataSpec, dict[str, np.ndarray]]:
    generator = np.random.default_rng(4)
    start = 1.7e9 + 3e7 * generator.random(count)
    rows = {"start": start, "end": start + 30 + generator.standard_normal(count)}
    return DataSpec(count, dict.fromkeys(rows, FieldSpec((), "float64")), {}, "float32"), rows


@pytest.mark.parametrize("name", ["gaussian", "matrix_factorization"])
def test_a_plain_likelihood_is_hardly_rounded(
    name: str, make_case: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with local latents, and where rows come in several calls, the last of them shorter."""
    case = make_case(name, "float32")
    prior, entries = case.model.prior(case.spec), case.spec.entries_of(np.arange(case.spec.num_rows))
    draws = jax.device_get(jax.jit(lambda key: prior.sample((CHAINS, DRAWS), seed=key))(jax.random.key(1)))
    sampled = as_sampled(case.model, draws, case.rows, entries, "float32")
    posterior = store(tmp_path, draws, sampled)
    found = likelihood_rounding(case.model, case.spec, Rows(case.rows), posterior)
    assert 0 < found < 1e-4 * np.abs(sampled).max()
    truth = as_sampled(case.model, draws, case.rows, entries, "float64")
    chosen = spread_evenly(CHAINS * DRAWS, rounding.NUM_DRAWS)
    compared = sampled.T.ravel()[chosen]
    expected = (compared - truth.T.ravel()[chosen])[~is_lost(compared)].std()
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    monkeypatch.setattr(rounding, "READ_ROWS", case.spec.num_rows // 2 + 1)
    for num_bytes in (2**26, 300):
        # With little memory: one row at a time, fewer draws, and these read one by one.
        monkeypatch.setattr(rounding, "_BYTES", num_bytes)
        in_parts = likelihood_rounding(case.model, case.spec, Rows(case.rows), posterior)
        np.testing.assert_allclose(in_parts, found, rtol=1e-3 if num_bytes > 300 else 2.0)


def test_digits_that_a_formula_loses_are_told_in_nats(tmp_path: Path) -> None:
    spec, rows = times(200)
    model = Durations(Settings(), spec)
    draws = {"mean": (30 + 0.07 * np.random.default_rng(5).standard_normal((CHAINS, DRAWS))).astype(np.float32)}
    evaluate = functools.partial(as_sampled, model, draws, rows, np.arange(200))
    lost = likelihood_rounding(model, spec, Rows(rows), store(tmp_path, draws, evaluate("float32")))
    assert lost > 1.0
    kept = likelihood_rounding(model, spec, Rows(rows), store(tmp_path, draws, evaluate("float64")))
    assert kept < 1e-6
    lost = evaluate("float64")
    lost[0, : DRAWS // 2] = -1e8
    found = likelihood_rounding(model, spec, Rows(rows), store(tmp_path, draws, lost))
    assert found < 1e-6, "draws of a lost chain decide nothing"
    second = evaluate("float64")
    second[0, : DRAWS // 2] += 20
    found = likelihood_rounding(model, spec, Rows(rows), store(tmp_path, draws, second))
    assert found > 5, "a mode that loses digits has another weight"
    nowhere = {"mean": np.full_like(draws["mean"], np.nan)}
    assert likelihood_rounding(model, spec, Rows(rows), store(tmp_path, nowhere, evaluate("float64"))) == math.inf
    few = {"mean": draws["mean"][:, :3]}
    assert likelihood_rounding(model, spec, Rows(rows), store(tmp_path, few, evaluate("float64")[:, :3])) is None


class Clipped(Durations):
    """A fast path of its own that is right where the mean is small."""

    def log_likelihood_and_gradient(self, latents: Any, rows: Any, is_row: Any) -> Any:
        return super().log_likelihood_and_gradient({"mean": jnp.clip(latents["mean"], -2.0, 2.0)}, rows, is_row)


def test_a_fast_path_that_is_wrong_at_some_draws_is_told_in_nats_in_any_dtype(tmp_path: Path) -> None:
    rows = {"start": np.zeros(30), "end": np.full(30, 2.0)}
    spec = DataSpec(30, dict.fromkeys(rows, FieldSpec((), "float64")), {}, "float64")
    model = Clipped(Settings(), spec)
    assert is_compared(model, spec)
    for width, expected in ((0.1, 0.0), (1.0, 2.0)):
        draws = {"mean": 1.5 + width * np.random.default_rng(6).standard_normal((CHAINS, DRAWS))}
        clipped = {"mean": np.clip(draws["mean"], -2, 2)}
        sampled = as_sampled(model, clipped, rows, np.arange(30), "float64")
        found = likelihood_rounding(model, spec, Rows(rows), store(tmp_path, draws, sampled))
        assert found is not None
        assert found < 1e-9 if not expected else found > expected


def test_nothing_is_compared_that_is_exact_or_of_many_datasets() -> None:
    """Sums over rows are computed in float64, from latents before they are stored."""
    spec, _ = times(5)
    model = Durations(Settings(), spec)
    assert is_compared(model, spec)
    others = {"dtype": "float64"}, {"dataset_counts": (2, 3)}, {"are_sums": True}
    assert not any(is_compared(model, dataclasses.replace(spec, **changed)) for changed in others)
    fast = Clipped(Settings(), spec)
    assert not any(is_compared(fast, dataclasses.replace(spec, **changed)) for changed in others[1:])
