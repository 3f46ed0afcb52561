"""Simulated outcomes have the shape of the observed ones; without draws of the prior there is an empty table."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._draw_blocks import RowsOfBlock
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.predictive_checks.outcomes import check_outcomes, check_prior, simulate_once, survey_rows
from bayesmesh.analyses.predictive_checks.quantities import add_sums, quantities_of, sum_powers
from bayesmesh.analyses.predictive_checks.residuals import simultaneous_band
from bayesmesh.analyses.predictive_checks.section import build_section, describe, prior_sentence, read_bins, read_checks
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import prepared
from bayesmesh.errors import ConfigError
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.models.gaussian import Options as GaussianOptions
from bayesmesh.models.glm.model import Glm, Options
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import open_posterior


def test_outcomes_are_simulated_in_the_shape_of_the_observed_ones() -> None:
    predictive = tfp.distributions.Normal(jnp.array([0.0, 1e6]), 1.0)
    found = simulate_once(predictive, jnp.zeros(2))
    assert abs(float(found[1]) - 1e6) < 10
    with pytest.raises(ConfigError, match=r"simulated outcomes have shape \(2,\), and the observed ones \(2, 1\)"):
        simulate_once(predictive, jnp.zeros((2, 1)))


def test_rows_of_all_blocks_say_what_an_outcome_is() -> None:
    """Of a sorted table, the first block holds neither the largest outcomes nor rows of its later parts."""
    outcome = np.sort(np.random.default_rng(2).poisson(3, 250)).astype(np.int32)
    size = 70
    blocks = [
        RowsOfBlock(start, len(part), {"y": np.resize(part, size)}, np.zeros(size, int), part)
        for start in range(0, 250, size)
        for part in [outcome[start : start + size]]
    ]
    found = survey_rows(blocks, 250, size)
    assert (found.smallest, found.largest) == (outcome[0], outcome[-1])
    assert (found.centre, found.scale) == pytest.approx((outcome.mean(), outcome.std()))
    np.testing.assert_array_equal(found.rows.outcome, outcome[::4])
    assert found.rows.rows["y"].shape == (size,)
    assert found.rows.num_rows == 63
    np.testing.assert_array_equal(found.rows.rows["y"][63:], outcome[248])
    assert found.is_finite
    broken = [*blocks[:-1], blocks[-1]._replace(outcome=np.full(40, np.nan))]
    assert not survey_rows(broken, 250, size).is_finite


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
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.outcomes.CHUNK_CELLS", 64 * 50)
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
    monkeypatch.setattr("bayesmesh.analyses.predictive_checks.outcomes.KEPT_CELLS", 3500 * 60)
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


def test_a_band_holds_all_bins_of_a_draw_together() -> None:
    generator = np.random.default_rng(6)
    sets = generator.standard_normal((4000, 12)) + generator.standard_normal((4000, 1))
    low, high = simultaneous_band(sets[:2000])
    share = ((sets[2000:] >= low) & (sets[2000:] <= high)).all(axis=1).mean()
    assert share == pytest.approx(0.99, abs=0.01)
    one_by_one = np.quantile(sets[:2000], 0.995, axis=0)
    assert (high > one_by_one).all()


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


def test_censored_outcomes_are_completed_before_they_are_compared(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    x, limit = generator.standard_normal(400), generator.exponential(2.0, 400)
    time = generator.exponential(np.exp(0.5 + 0.4 * x))
    is_censored = time > limit
    data = Dataset({"time": np.minimum(time, limit), "x": x, "status": is_censored.astype(float)})
    shape = (2, 100)
    intercept = 0.5 + 0.4 * x.mean() + 0.06 * generator.standard_normal(shape)
    latents = {"intercept": intercept, "coefficients": 0.4 + 0.06 * generator.standard_normal((*shape, 1))}
    options = Options(formula="time ~ x", family="exponential", censored="status")
    files = check(tmp_path, data, options, latents, 100)
    table = read_checks(files["checks.csv"]).set_index("quantity")
    assert table.loc["mean", "observed"] > 1.2 * np.minimum(time, limit).mean()
    assert table.loc[["mean", "standard deviation", "residuals by column"], "p_value"].min() > 0.02
    assert f"Censored outcomes: {is_censored.sum()}" in build_section(files).body
