"""Test quantities are those of SciPy, and outcomes of a wrong model differ in them."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.predictive_checks.predictive_outcomes import check_outcomes, check_prior
from bayesmesh.analyses.predictive_checks.predictive_quantities import add_sums, quantities_of, sum_powers
from bayesmesh.analyses.predictive_checks.predictive_residuals import simultaneous_band
from bayesmesh.analyses.predictive_checks.section import (
    build_section,
    calibrations,
    describe,
    prior_sentence,
    read_bins,
    read_checks,
    sentence,
)
from bayesmesh.config.config_blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.data_sharding import shard
from bayesmesh.data.prepared_shards import prepared
from bayesmesh.data.shards import Shards
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.models.gaussian import Options as GaussianOptions
from bayesmesh.models.glm.model import Glm, Options
from bayesmesh.report.learned.learned_outcomes import choose_outcomes
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior_reader import open_posterior
from bayesmesh.store.zarr_arrays import open_group, write_array


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
    bound = BoundModel(Glm(options, spec), spec, shards)
    said = check_outcomes(bound, open_posterior(layout.posterior), draws, files)
    check_prior(bound, 0, files["prior.csv"])
    assert said.endswith(describe(files).removeprefix("predictive checks missed: "))
    return files


def test_overdispersed_counts_are_shown_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.predictive_outcomes.CHUNK_CELLS", 64 * 50)
    generator = np.random.default_rng(2)
    y, x = generator.negative_binomial(2, 0.3, 120).astype(np.int32), generator.standard_normal(120)
    shape = (2, 240)
    intercept = np.log(y.mean()) + 0.03 * generator.standard_normal(shape)
    latents = {"intercept": intercept, "coefficients": 0.03 * generator.standard_normal((*shape, 1))}
    # 480 draws, of which every third is used, and 120 rows in blocks of 50.
    files = check(tmp_path, Dataset({"y": y, "x": x}), Options(formula="y ~ x", family="poisson"), latents, 160)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    marginal = ["mean", "variance / mean", "share of zeros", "largest"]
    of_residuals = [
        "residuals by prediction",
        "residuals by column",
        "spread of residuals by prediction",
        "spread of residuals by column",
        "residuals by term",
    ]
    assert list(table.index) == marginal + of_residuals
    assert table.loc["residuals by column", "largest_for"] == "x"
    assert table.loc[of_residuals, "p_value"].min() > 0.01, "overdispersion is the same everywhere"
    assert table.loc["variance / mean", "observed"] == pytest.approx(y.var() / y.mean())
    assert table.loc["variance / mean", "simulated_mean"] == pytest.approx(1, abs=0.1)
    assert table.loc["mean", "simulated_mean"] == pytest.approx(y.mean(), rel=0.02)
    assert table.loc["mean", "p_value"] > 0.1
    section = build_section(files)
    assert "does not reproduce the observed outcomes" in section.body
    (fit,) = section.fit
    assert fit.state == "fail"
    assert "narrow" in fit.refuted
    assert "bias" in fit.cleared, "overdispersion is not a bias"
    assert "variance / mean" in fit.text
    shown, folded = section.body.split("<details>")
    assert "variance / mean" in shown
    assert ">mean<" not in shown, "what does not differ is folded away"
    assert ">mean<" in folded
    assert "variance / mean" in describe(files)
    assert fit.refuted["narrow"] == max(fit.refuted.values())
    assert not fit.terms
    # Enough sets for a p value below the level of one of nine quantities: 18 of each draw.
    assert open_group(files["quantities.zarr"])["simulated"].shape == (18 * 160, 9)


@pytest.mark.parametrize("log_mean", [0.8, -3.0])
def test_counts_are_counts_wherever_the_large_ones_lie(
    log_mean: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first block all counts are 0 or 1, and with the small mean in all blocks; simulated ones are larger."""
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.predictive_outcomes.KEPT_CELLS", 3500 * 60)
    generator = np.random.default_rng(3)
    x = np.sort(generator.standard_normal(300))
    y = generator.poisson(np.exp(log_mean + 1.2 * x)).astype(np.int32)
    y = np.minimum(y, 1) if log_mean < 0 else np.where(np.arange(300) < 60, np.minimum(y, 1), y)
    shape = (4, 100)
    latents = {
        "intercept": log_mean + 0.02 * generator.standard_normal(shape),
        "coefficients": 1.2 + 0.02 * generator.standard_normal((*shape, 1)),
    }
    files = check(tmp_path, Dataset({"y": y, "x": x}), Options(formula="y ~ x", family="poisson"), latents, 400)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert list(table.index[:4]) == ["mean", "variance / mean", "share of zeros", "largest"]
    assert np.isfinite(table[["observed", "simulated_mean", "low", "high"]].to_numpy(dtype=float)).all()
    bins = read_bins(files["bins.csv"])
    of_predictions = bins[bins["variable"] == "(predicted)"]
    assert of_predictions["num_rows"].between(70, 130).tolist() == [True] * 3, (
        "edges of bins come from rows of all blocks"
    )


def test_a_standardised_outcome_is_shown_in_the_unit_of_the_table(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    x = generator.standard_normal(200)
    y = x / np.sqrt(2) + generator.standard_normal(200) / np.sqrt(2)
    shape = (2, 200)
    latents = {
        "intercept": 0.05 * generator.standard_normal(shape), "sigma": np.full(shape, 0.71),
        "coefficients": 0.71 + 0.05 * generator.standard_normal((*shape, 1)),
    }  # fmt: skip
    about = {"y": Variable("number", mean=1000.0, scale=70.0), "x": Variable("number")}
    files = check(tmp_path, Dataset({"y": y, "x": x}, variables=about), Options(formula="y ~ x"), latents, 400)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert table.loc["mean", "observed"] == pytest.approx(1000 + 70 * y.mean())
    assert table.loc["standard deviation", "simulated_mean"] == pytest.approx(70, rel=0.1)
    assert table["p_value"].min() > 0.01
    bins = read_bins(files["bins.csv"])
    of_x = bins[bins["variable"] == "x"]
    assert of_x["observed"].between(800, 1200).all()
    assert of_x["middle_low"].between(700, 1200).all()


def test_bins_outside_a_band_that_is_too_narrow_are_not_called_a_bias() -> None:
    row = {
        "variable": "(predicted)",
        "label": "1",
        "num_rows": 9,
        "predicted": 2.0,
        "observed": 3.0,
        "low": 1.5,
        "high": 2.5,
    }
    bins = pd.DataFrame([row])
    checks = {"low": 0.0, "high": 1.0, "simulated_mean": 0.5, "largest_for": "", "proposed": ""}
    of_residuals = {**checks, "quantity": "residuals by prediction", "observed": 0.5}
    (panel,) = calibrations(bins, pd.DataFrame([{**of_residuals, "p_value": 0.5}]))
    assert panel.note.startswith("1 of 1 bins lies outside the band")
    assert panel.note.endswith("the bins show no bias (p = 0.50).")
    (panel,) = calibrations(bins, pd.DataFrame([{**of_residuals, "p_value": 0.001}]))
    assert "no bias" not in panel.note
    missed = {**checks, "quantity": "mean", "observed": 2.0, "p_value": 0.001}
    next_one = {**of_residuals, "quantity": "residuals by column", "largest_for": "site", "p_value": 0.03}
    others = [{**of_residuals, "quantity": f"q{n}", "p_value": 0.5} for n in range(4)]
    assert sentence(pd.DataFrame([missed, next_one, *others])).endswith("is 0.030, for residuals by column (site).")
    assert "p values" not in sentence(pd.DataFrame([missed, *others]))


def test_a_column_that_the_model_does_not_read_is_named_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither the outcome in another unit, nor the column of weights is a predictor."""
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.predictive_outcomes.KEPT_CELLS", 3500 * 70)
    generator = np.random.default_rng(5)
    num = 300
    site, x, z = (
        generator.integers(0, 6, num).astype(np.int32),
        generator.standard_normal(num),
        generator.standard_normal(num),
    )
    y = 1 + 0.5 * x + np.array([0, 0, 0, 0, 0, 1.5])[site] + generator.standard_normal(num)
    rows = {"y": y, "x": x, "z": z, "site": site, "thousands": 1000 * y, "kg": generator.random(num) + 0.5}
    variables = {
        "site": Variable("category", tuple("abcdef")),
        **{name: Variable("number") for name in ("y", "z", "thousands", "kg")},
        "x": Variable("number", mean=10.0, scale=2.0),
    }
    shape = (2, 100)
    latents = {
        "intercept": y.mean() + 0.07 * generator.standard_normal(shape), "sigma": np.full(shape, 1.14),
        "coefficients": 0.5 + 0.07 * generator.standard_normal((*shape, 1)),
    }  # fmt: skip
    files = check(
        tmp_path, Dataset(rows, variables=variables, roles={"weights": "kg"}), Options(formula="y ~ x"), latents, 200
    )
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert table.loc["residuals by column", "p_value"] < 0.004
    assert table.loc["residuals by column", ["largest_for", "proposed"]].tolist() == ["site", "(1 | site)"]
    bins = read_bins(files["bins.csv"])
    assert set(bins["variable"]) == {"(predicted)", "x", "z", "site"}
    of_site = bins[bins["variable"] == "site"].set_index("label")
    assert of_site["num_rows"].tolist() == np.bincount(site).tolist()
    assert of_site.loc["f", "observed"] == pytest.approx(y[site == 5].mean())
    assert of_site.loc["f", "observed"] > of_site.loc["f", "high"]
    assert (of_site["low"] < of_site["predicted"]).all()
    of_x = bins[bins["variable"] == "x"]
    middles = [np.quantile(each, (0.05, 0.95)) for each in np.array_split(y[np.argsort(x)], 10)]
    np.testing.assert_allclose(of_x[["middle_low", "middle_high"]], middles)
    np.testing.assert_allclose(of_x["at"], [10 + 2 * each.mean() for each in np.array_split(np.sort(x), 10)])
    # Of all rows of a bin together: in the outer bins, the slope adds to the scatter of single rows.
    widths = (of_x["interval_high"] - of_x["interval_low"]).to_numpy() / (2 * 1.645 * 1.14)
    np.testing.assert_allclose(widths[1:-1], 1, rtol=0.06)
    assert (widths[[0, -1]] > 1.01).all()
    section = build_section(files)
    figures = choose_outcomes([section], {"model": {"formula": "y ~ x"}})
    assert figures is not None
    assert [panel.title for panel in figures.panels] == ["y by x"]
    assert figures.panels[0].note == f"x ranges from {10 + 2 * x.min():.4g} to {10 + 2 * x.max():.4g} in the data."
    assert len(choose_outcomes([section], {}).panels) == 3, "without a formula, the first columns"
    page = section.body
    assert "Outcomes differ from their predictions in a way that depends on the column site" in page
    assert "Observed minus predicted, by site" in page
    assert "by thousands" not in page


def test_a_band_holds_all_bins_of_a_draw_together() -> None:
    generator = np.random.default_rng(6)
    sets = generator.standard_normal((4000, 12)) + generator.standard_normal((4000, 1))
    low, high = simultaneous_band(sets[:2000])
    share = ((sets[2000:] >= low) & (sets[2000:] <= high)).all(axis=1).mean()
    assert share == pytest.approx(0.99, abs=0.01)
    one_by_one = np.quantile(sets[:2000], 0.995, axis=0)
    assert (high > one_by_one).all()


@pytest.mark.parametrize("family", ["categorical", "ordinal"])
def test_of_classes_the_shares_are_checked(tmp_path: Path, family: str) -> None:
    generator = np.random.default_rng(3)
    codes, x = generator.integers(0, 3, 60).astype(np.int32), generator.standard_normal(60)
    variables = {"kind": Variable("category", ("low", "mid", "high")), "x": Variable("number")}
    latents = {
        "categorical": {
            "intercept": np.broadcast_to([0.0, -3.0], (2, 30, 2)),
            "coefficients": np.zeros((2, 30, 1, 2)),
        },
        "ordinal": {
            "baseline": np.broadcast_to([0.488, 0.488, 0.024], (2, 30, 3)),
            "coefficients": np.zeros((2, 30, 1)),
        },
    }[family]
    options = Options(formula="kind ~ x", family=family)
    files = check(tmp_path, Dataset({"kind": codes, "x": x}, variables=variables), options, latents, 1000)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert list(table.index) == [
        *(f"share of class {i}" for i in range(3)),
        "residuals by prediction",
        "residuals by column",
        "residuals by term",
    ]
    assert table["simulated_mean"].tolist()[:3] == pytest.approx([0.488, 0.488, 0.024], abs=0.02)
    assert table.loc["share of class 2", "p_value"] < 0.05


def test_outcomes_of_the_prior_are_compared_too(tmp_path: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    generator = np.random.default_rng(7)
    layout = DataLayout(tmp_path, "data", "all")
    x = 2 + 0.5 * generator.standard_normal((50, 1))
    shard(Dataset({"x": x}, constants={"noise_scale": 0.5}), DataSettings(held_out_fraction=0.0), layout)
    shards = Shards(layout.shards)
    spec = shards.spec("float64")
    path = tmp_path / "prior.csv"
    said = []
    for scale in (2.0, 0.1, 1e6):
        bound = BoundModel(Gaussian(GaussianOptions(prior_scale=scale), spec), spec, shards)
        text = check_prior(bound, 400, path)
        said.append(prior_sentence(read_checks(path)))
    table = read_checks(path).set_index("quantity")
    assert text == "; of the prior 0 of 6 differ"
    # Of one mean for all rows, data sets are centred anywhere and spread as the noise says.
    assert table.loc["mean", "high"] == pytest.approx(2e6, rel=0.2)
    assert table.loc["standard deviation", "simulated_mean"] == pytest.approx(0.5, rel=0.1)
    assert said[0] == "The prior alone can produce outcomes like the observed ones."
    assert "hardly ever produces outcomes like the observed ones" in said[1]
    assert "mean 1." in said[1] or "mean 2." in said[1]
    wide = table.reset_index().assign(p_value=0.5)
    wide.loc[wide["quantity"] == "standard deviation", "simulated_mean"] = 500.0
    assert "It is wide" in prior_sentence(wide)
    assert check_prior(bound, 0, path) == ""
    assert prior_sentence(read_checks(path)) == ""
