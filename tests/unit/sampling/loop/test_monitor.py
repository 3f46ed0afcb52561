"""Monitored summaries: those of direct evaluation, whatever the looks, and each draw evaluated once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.sampling.density.summaries import derive, find_fixed, spread_evenly
from bayesmesh.sampling.loop.monitor import MonitoredProgram, MonitoredSummaries, compile_monitored, summary_names
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior.reader import open_posterior
from levels import GROUP_SIZES, groups_case
from rows_in_memory import Rows

CHAINS, DRAWS, PROBES = 2, 23, 4
MODELS = {
    "gaussian": ["mean"],
    "softmax_regression": ["biases", "logits"],
    "matrix_factorization": ["film_biases", "logits"],
}


@pytest.fixture(params=[*MODELS, "groups"])
def case(request: pytest.FixtureRequest, make_case: Callable[..., Any]) -> Any:
    return groups_case(make_case) if request.param == "groups" else make_case(request.param)


@pytest.fixture
def folder(case: Any, tmp_path: Path) -> Path:
    """A chain group's folder, with draws of the prior in place of a posterior."""
    prior = case.model.prior(case.spec)
    drawn = jax.device_get(jax.jit(lambda: prior.sample((CHAINS, DRAWS), seed=jax.random.key(1)))())
    root = open_group(tmp_path / "draws.zarr", "w")
    for name, value in drawn.items():
        dims = (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(value.ndim - 2)))
        write_array(root.require_group("posterior"), name, value, dims)
    for number, name in enumerate(("lp", "log_likelihood")):
        values = np.arange(CHAINS * DRAWS, dtype=np.float64).reshape(CHAINS, DRAWS) + 1000 * number
        write_array(root.require_group("sample_stats"), name, values, (CHAIN, DRAW))
    return tmp_path


def monitored(case: Any, folder: Path, names: list[str] | None = None) -> MonitoredSummaries:
    names = summary_names(case.model, case.spec) if names is None else names
    return MonitoredSummaries(case.model, case.spec, Rows(case.rows), folder, names, PROBES)


def test_every_summary_is_named(case: Any) -> None:
    names = summary_names(case.model, case.spec)
    assert set(names) >= {
        "log_density",
        "log_likelihood",
        *(n for n in MODELS.get(case.name, ()) if n != "film_biases"),
    }
    entries = case.spec.entries_of(np.arange(case.spec.num_rows))
    axes = case.model.local_latents

    def summaries() -> Any:
        latents = case.model.prior(case.spec).sample(seed=jax.random.key(0))
        aligned = {k: jnp.take(v, entries, axis=axes[k]) if k in axes else v for k, v in latents.items()}
        return case.model.summaries(aligned, case.arrays)

    found = jax.eval_shape(summaries)
    assert set(names) == {*found, "log_density", "log_likelihood"}


def test_values_are_those_of_the_posterior(case: Any, folder: Path) -> None:
    (folder / "draws.zarr").rename(folder / "posterior.zarr")
    expected = derive(case.model, case.spec, Rows(case.rows), open_posterior(folder / "posterior.zarr"), PROBES, 0)
    (folder / "posterior.zarr").rename(folder / "draws.zarr")
    found = monitored(case, folder).first(DRAWS)
    for name, values in expected["summaries"].items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found["log_density"][1], np.arange(DRAWS) + DRAWS)
    np.testing.assert_array_equal(found["log_likelihood"][0], np.arange(DRAWS) + 1000)


def test_a_probe_row_takes_the_latents_of_its_group(make_case: Callable[..., Any], tmp_path: Path) -> None:
    case = groups_case(make_case)
    root = open_group(tmp_path / "draws.zarr", "w")
    prior = case.model.prior(case.spec)
    drawn = jax.device_get(jax.jit(lambda: prior.sample((CHAINS, DRAWS), seed=jax.random.key(1)))())
    for name, value in drawn.items():
        dims = (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(value.ndim - 2)))
        write_array(root.require_group("posterior"), name, value, dims)
    found = monitored(case, tmp_path, ["means"]).first(DRAWS)["means"]
    group = np.repeat(np.arange(len(GROUP_SIZES)), GROUP_SIZES)[spread_evenly(case.spec.num_rows, PROBES)]
    np.testing.assert_allclose(found, drawn["centre"][:, :, None] + drawn["levels"][:, :, group], rtol=1e-12)


def test_looks_before_do_not_change_the_values(case: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.sampling.loop.monitor.MOST_DRAWS", 5)
    at_once, by_looks = monitored(case, folder).first(DRAWS), monitored(case, folder)
    for look in (1, 4, 4, 11, DRAWS):
        found = by_looks.first(look)
        for name, values in at_once.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_allclose(found[name], values[:, :look], rtol=1e-13, atol=1e-13)


def test_a_draw_is_evaluated_once_and_by_one_program(case: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced, blocks = [], []
    summaries = type(case.model).summaries

    def counted(model: Any, latents: Any, rows: Any) -> Any:
        traced.append(1)
        return summaries(model, latents, rows)

    monkeypatch.setattr("bayesmesh.sampling.loop.monitor.MOST_DRAWS", 5)
    looked = monitored(case, folder)
    monkeypatch.setattr(type(case.model), "summaries", counted)
    run = MonitoredProgram.__call__
    monkeypatch.setattr(MonitoredProgram, "__call__", lambda self, block: blocks.append(1) or run(self, block))
    for look in (5, 10, 23):
        looked.first(look)
    assert sum(traced) == 1
    assert sum(blocks) == 1 + 1 + 3


def test_what_was_compiled_before_is_what_a_look_asks_for(
    case: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compile stage knows shapes, a look the store: they must come to one program, or each look's is made anew."""
    asked = []
    make = MonitoredProgram.__init__

    def noting(self: MonitoredProgram, *arguments: Any) -> None:
        make(self, *arguments)
        asked.append(({k: (v.shape, v.dtype) for k, v in arguments[-1].items()}, *arguments[3:5]))

    monkeypatch.setattr(MonitoredProgram, "__init__", noting)
    names = summary_names(case.model, case.spec)
    compile_monitored(case.model, case.spec, Rows(case.rows), names, PROBES, CHAINS)
    monitored(case, folder).first(DRAWS)
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_entries_that_no_latent_changes_are_told_from_stuck_ones(make_case: Callable[..., Any]) -> None:
    case = make_case("gaussian")

    def summaries(latents: Any, rows: Any) -> Any:
        level = next(iter(latents.values())).reshape(-1)[0]
        factor = jnp.stack([jnp.ones_like(level), jnp.zeros_like(level), level, jnp.zeros_like(level)])
        return {
            "predictor": jnp.zeros(3), "factor": factor, "share": jax.nn.softmax(level[None]), "level": level,
            "total": jax.nn.softmax(jnp.stack([level, 2 * level, -level])).sum(),
        }  # fmt: skip

    rng = np.random.default_rng(0)
    latents = {name: rng.normal(size=(2, 9, *shape)) for name, shape in _shapes(case).items()}
    draws = jax.vmap(jax.vmap(lambda z: summaries(z, None)))(latents)
    found = find_fixed(jax.device_get(draws), case.model, case.spec, summaries, {}, np.arange(1))
    assert {k: v.tolist() for k, v in found.items()} == {
        "predictor": [0, 1, 2], "factor": [0, 1, 3], "share": [0], "total": [0]
    }  # fmt: skip
    stuck = {"level": np.full((2, 9), 0.5), "factor": np.full((2, 9, 4), [1.0, 0.0, 0.5, 0.0])}
    assert {
        k: v.tolist() for k, v in find_fixed(stuck, case.model, case.spec, summaries, {}, np.arange(1)).items()
    } == {"factor": [0, 1, 3]}


def _shapes(case: Any) -> dict[str, tuple[int, ...]]:
    drawn = jax.eval_shape(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
    return {name: value.shape for name, value in drawn.items()}
