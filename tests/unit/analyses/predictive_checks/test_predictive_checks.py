"""Test quantities are those of SciPy, and outcomes of a wrong model differ in them."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.predictive_checks.quantities import LEVEL, add_sums, p_value, quantities_of, sum_powers
from bayesmesh.analyses.predictive_checks.section import build_section, describe, read_checks
from bayesmesh.analyses.predictive_checks.simulated_outcomes import check_outcomes
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.prepared_shards import prepared
from bayesmesh.data.sharding import shard
from bayesmesh.models.glm.model import Glm, Options
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior_reader import open_posterior

IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
NUM_REPEATS, NUM_WRONG_FLAGGED, NUM_RIGHT_FLAGGED = (20, 18, 2) if IS_NIGHTLY else (2, 2, 0)


def test_quantities_are_those_of_scipy_however_rows_are_cut() -> None:
    y = np.random.default_rng(1).gamma(2, 3, (4, 90)) + 1000
    whole = sum_powers(y, 1005.0, 4.0)
    cut = add_sums(sum_powers(y[:, :20], 1005.0, 4.0), sum_powers(y[:, 20:], 1005.0, 4.0))
    np.testing.assert_allclose(whole, cut)
    found = quantities_of(cut, "real", 1005.0, 4.0)
    expected = {
        "mean": y.mean(1), "standard deviation": y.std(1), "skewness": stats.skew(y, axis=1),
        "kurtosis": stats.kurtosis(y, axis=1, fisher=False), "smallest": y.min(1), "largest": y.max(1),
    }  # fmt: skip
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


def flagged(y: np.ndarray, generator: np.random.Generator) -> bool:
    """Whether a normal with unknown mean and variance is said not to produce such outcomes; its posterior is conjugate."""
    num_rows, num_draws = len(y), 400
    variance = (num_rows - 1) * y.var(ddof=1) / generator.chisquare(num_rows - 1, (num_draws, 1))
    mean = y.mean() + np.sqrt(variance / num_rows) * generator.standard_normal((num_draws, 1))
    simulated = mean + np.sqrt(variance) * generator.standard_normal((num_draws, num_rows))
    about = (float(y.mean()), float(y.std()))
    (observed, found) = (quantities_of(sum_powers(each, *about), "real", *about) for each in (y[None], simulated))
    return any(p_value(found[name], observed[name][0]) < LEVEL / len(found) for name in found)


def test_a_wrong_model_is_flagged_and_a_right_one_is_not() -> None:
    """Heavy tails, which LOO-PIT often misses."""
    found = {"right": 0, "wrong": 0}
    for repeat in range(NUM_REPEATS):
        generator = np.random.default_rng([11, repeat])
        found["right"] += flagged(generator.normal(2, 3, 300), generator)
        found["wrong"] += flagged(generator.standard_t(3, 300), generator)
    assert found["wrong"] >= NUM_WRONG_FLAGGED
    assert found["right"] <= NUM_RIGHT_FLAGGED


def check(
    folder: Path, dataset: Dataset, options: Options, latents: dict[str, np.ndarray], draws: int
) -> dict[str, Path]:
    jax.config.update("jax_enable_x64", True)
    layout, data = ExperimentLayout(folder, "one"), DataLayout(folder, "data", "all")
    shard(dataset, DataSettings(), data)
    shards = prepared(data.shards, lambda spec, read: Glm.prepare(options, spec, read))
    spec = shards.spec("float64")
    group = open_group(layout.posterior, "w").create_group("posterior")
    for name, values in latents.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    files = declared("predictive_checks").files(layout.folder)
    files["checks.csv"].parent.mkdir()
    said = check_outcomes(BoundModel(Glm(options, spec), spec, shards), open_posterior(layout.posterior), draws, files)
    assert said.endswith(describe(files).removeprefix("predictive checks missed: "))
    return files


def test_overdispersed_counts_are_shown_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.simulated_outcomes.CHUNK_CELLS", 64 * 70)
    generator = np.random.default_rng(2)
    y, x = generator.negative_binomial(2, 0.3, 200).astype(np.int32), generator.standard_normal(200)
    shape = (2, 240)
    intercept = np.log(y.mean()) + 0.03 * generator.standard_normal(shape)
    latents = {"intercept": intercept, "coefficients": 0.03 * generator.standard_normal((*shape, 1))}
    # 480 draws, of which every third is used, and 200 rows in blocks of 70.
    files = check(tmp_path, Dataset({"y": y, "x": x}), Options(formula="y ~ x", family="poisson"), latents, 160)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert list(table.index) == ["mean", "variance / mean", "share of zeros", "largest"]
    assert table.loc["variance / mean", "observed"] == pytest.approx(y.var() / y.mean())
    assert table.loc["variance / mean", "simulated_mean"] == pytest.approx(1, abs=0.1)
    assert table.loc["mean", "simulated_mean"] == pytest.approx(y.mean(), rel=0.02)
    assert table.loc["mean", "p_value"] > 0.1
    section = build_section(files)
    assert "does not produce outcomes like the observed ones" in section.body
    assert "variance / mean" in describe(files)
    assert open_group(files["quantities.zarr"])["simulated"].shape == (160, 4)


def test_of_classes_the_shares_are_checked(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    codes, x = generator.integers(0, 3, 60).astype(np.int32), generator.standard_normal(60)
    variables = {"kind": Variable("category", ("a", "b", "c")), "x": Variable("number")}
    latents = {"intercept": np.broadcast_to([0.0, -3.0], (2, 30, 2)), "coefficients": np.zeros((2, 30, 1, 2))}
    options = Options(formula="kind ~ x", family="categorical")
    files = check(tmp_path, Dataset({"kind": codes, "x": x}, variables=variables), options, latents, 1000)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert list(table.index) == [f"share of class {i}" for i in range(3)]
    assert table["simulated_mean"].tolist() == pytest.approx([0.488, 0.488, 0.024], abs=0.02)
    assert table.loc["share of class 2", "p_value"] < 0.05
