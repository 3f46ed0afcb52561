"""Leave-one-out against exact refits of conjugate models, and against arviz_stats on the same log likelihood."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from arviz_stats import loo as reference_loo
from arviz_stats.base import array_stats
from scipy import stats
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._likelihood import RowLikelihood, below, check_rows, relative_efficiency
from bayesmesh.analyses._refit_scores import RefitRows
from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.analyses.loo import leave_one_out as leave_one_out_module
from bayesmesh.analyses.loo.analysis import Loo
from bayesmesh.analyses.loo.leave_one_out import _with_refits, leave_one_out, leave_out_rows
from bayesmesh.analyses.loo.moment_matching import Affine, match_moments
from bayesmesh.analyses.loo.section import build_section, describe
from bayesmesh.analyses.loo.sums import read_sums, summarise
from bayesmesh.analyses.options import LooOptions
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.data.base import Dataset, DataSpec, FieldSpec
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import prepared
from bayesmesh.errors import ConfigError
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.models.gaussian import Options as GaussianOptions
from bayesmesh.models.glm.model import Glm
from bayesmesh.models.glm.model import Options as GlmOptions
from bayesmesh.models.matrix_factorization import MatrixFactorization
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from bayesmesh.store.scores import RowScores, read_pointwise

NOISE = 1.5


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def write_posterior(folder: Path, latents: Mapping[str, np.ndarray]) -> Posterior:
    layout = ExperimentLayout(folder, "one")
    group = open_group(layout.posterior, "w").create_group("posterior")
    for name, values in latents.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(values.ndim - 2))))
    return open_posterior(layout.posterior)


def write_shards(folder: Path, dataset: Dataset) -> Path:
    layout = DataLayout(folder, "data", "all")
    shard(dataset, DataSettings(held_out_fraction=0.0), layout)
    return layout.shards


def files_of(folder: Path) -> dict[str, Path]:
    files = declared("loo").files(folder / "one")
    files["loo.csv"].parent.mkdir(parents=True)
    return files


@pytest.fixture
def normal_mean(tmp_path: Path) -> tuple[BoundModel, Posterior, np.ndarray]:
    """Rows of a normal with known noise, exact draws of the posterior of its mean, and exact scores of rows left out."""
    generator = np.random.default_rng(3)
    x = 0.7 + NOISE * generator.standard_normal(41)
    shards = Shards(
        write_shards(tmp_path, Dataset({"x": x[:, None]}, {"x": x[:5, None] + 1}, constants={"noise_scale": NOISE}))
    )
    precision = 1 + (len(x)) / NOISE**2
    draws = x.sum() / NOISE**2 / precision + generator.standard_normal((4, 1000, 1)) / np.sqrt(precision)
    without = 1 / (precision - 1 / NOISE**2)
    exact = stats.norm.logpdf(x, without * (x.sum() - x) / NOISE**2, np.sqrt(without + NOISE**2))
    spec = shards.spec("float64")
    return (
        BoundModel(Gaussian(GaussianOptions(), spec), spec, shards),
        write_posterior(tmp_path, {"mean": draws}),
        exact,
    )


def test_a_normal_mean_has_its_exact_leave_one_out_scores(
    normal_mean: tuple[BoundModel, Posterior, np.ndarray], tmp_path: Path
) -> None:
    bound, posterior, exact = normal_mean
    files = files_of(tmp_path)
    # Blocks of 16 rows: the last is shorter than the others.
    said = leave_out_rows(bound, posterior, 16 * 8 * 4000, files)
    found = read_pointwise(files["pointwise.zarr"])
    scores, sums = found["left_out"], read_sums(files["loo.csv"])
    assert (np.abs(scores.elpd - exact) < 5 * scores.mcse + 1e-4).all()
    assert abs(scores.elpd.sum() - exact.sum()) < 5 * sums["elpd_mcse"]
    assert sums["elpd_mcse"] < 0.05
    assert sums["num_high_k"] == 0
    assert sums["p_loo"] == pytest.approx(1, abs=0.4)
    # Held-out rows: the predictive density of all draws, here of the posterior in closed form.
    x, variance = bound.shards.read_rows(0, 41)["x"][:, 0], 1 / (1 + 41 / NOISE**2)
    held = stats.norm.logpdf(x[:5] + 1, variance * x.sum() / NOISE**2, np.sqrt(variance + NOISE**2))
    np.testing.assert_allclose(found["held_out"].elpd, held, atol=0.02)
    assert 0 < found["held_out"].monte_carlo_error < 0.1
    section = build_section(files)
    assert "below the limit of 0.70" in section.body
    assert "elpd −" in describe(files)
    assert said.startswith("elpd -")
    assert "0 of 41 rows" in said


def test_censored_rows_are_scored_by_the_probability_of_what_is_known(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    time, limit = generator.exponential(2.0, 30), np.full(30, 2.5)
    y, is_censored = np.minimum(time, limit), time > limit
    path = write_shards(tmp_path, Dataset({"y": y, "status": is_censored.astype(float)}))
    options = GlmOptions(formula="y ~ 1", family="exponential", censored="status")
    shards = prepared(path, lambda spec, read: Glm.prepare(options, spec, read))
    spec, events = shards.spec("float64"), 30 - is_censored.sum()
    rate = generator.gamma(events, 1 / y.sum(), (4, 1000))
    files = files_of(tmp_path)
    bound = BoundModel(Glm(options, spec), spec, shards)
    leave_out_rows(bound, write_posterior(tmp_path, {"intercept": -np.log(rate)}), 2**24, files)
    found = read_pointwise(files["pointwise.zarr"])["left_out"]
    # The posterior of the rate without a row is a gamma distribution, and the scores follow in closed form.
    shape, others = events - ~is_censored, y.sum() - y
    exact = shape * np.log(others / (others + y)) + np.where(is_censored, 0, np.log(shape / (others + y)))
    assert is_censored.any()
    assert (np.abs(found.elpd - exact) < 5 * found.mcse + 1e-4).all()


def test_rows_with_a_high_k_are_repaired_by_moving_the_draws(tmp_path: Path) -> None:
    """Two rows far from the others, whose exact scores are known; without the repair, they are far off."""
    generator = np.random.default_rng(8)
    x = 0.7 + NOISE * generator.standard_normal((40, 2))
    x[[3, 17]] += [[30, 0], [-20, 25]]
    path = write_shards(tmp_path, Dataset({"x": x}, constants={"noise_scale": NOISE}))
    shards, scale = Shards(path), 5.0
    spec = shards.spec("float64")
    model = Gaussian(GaussianOptions(prior_scale=scale), spec)
    precision = scale**-2 + len(x) / NOISE**2
    draws = x.sum(0) / NOISE**2 / precision + generator.standard_normal((4, 500, 2)) / np.sqrt(precision)
    without = 1 / (precision - NOISE**-2)
    exact = stats.norm.logpdf(x, without * (x.sum(0) - x) / NOISE**2, np.sqrt(without + NOISE**2)).sum(axis=1)
    bound, posterior, files = (
        BoundModel(model, spec, shards),
        write_posterior(tmp_path, {"mean": draws}),
        files_of(tmp_path),
    )
    leave_out_rows(bound, posterior, 2**26, files)
    before = read_pointwise(files["pointwise.zarr"])["left_out"]
    assert np.flatnonzero(before.pareto_k > 0.7).tolist() == [3, 17]
    assert (np.abs(before.elpd - exact)[[3, 17]] > 0.15).all()
    said = leave_out_rows(bound, posterior, 2**26, files, 5)
    after = read_pointwise(files["pointwise.zarr"])["left_out"]
    assert "0 of 40 rows" in said
    assert np.flatnonzero(after.is_matched).tolist() == [3, 17]
    np.testing.assert_array_equal(after.elpd[after.is_matched == 0], before.elpd[after.is_matched == 0])
    assert (np.abs(after.elpd - exact) < 5 * after.mcse + 1e-3).all()
    np.testing.assert_allclose(after.elpd, exact, atol=0.1)
    assert "2 rows were repaired by moment matching" in build_section(files).body


def test_rows_that_are_sampled_without_have_their_exact_scores(tmp_path: Path) -> None:
    """Two rows far from the others, of which moment matching may repair neither."""
    generator = np.random.default_rng(8)
    x = 0.7 + NOISE * generator.standard_normal(40)
    x[[3, 17]] += [30, -20]
    dataset, options = Dataset({"x": x[:, None]}, constants={"noise_scale": NOISE}), LooOptions(refit=(3, 17))

    def subject(name: str, left_out: LeftOut | None) -> Subject:
        data, layout = DataLayout(tmp_path, "data", name), ExperimentLayout(tmp_path, name)
        shard(dataset, DataSettings(left_out=left_out), data)
        shards = Shards(data.shards)
        spec, rows = shards.spec("float64"), shards.read_rows(0, shards.num_rows)["x"]
        precision = 1 + len(rows) / NOISE**2
        draws = rows.sum() / NOISE**2 / precision + generator.standard_normal((4, 1000, 1)) / np.sqrt(precision)
        write_array(open_group(layout.posterior, "w").create_group("posterior"), "mean", draws, (CHAIN, DRAW, "column"))
        return Subject(layout, lambda: BoundModel(Gaussian(GaussianOptions(), spec), spec, shards))

    refits = {f"one-{ending}": subject(f"one-{ending}", rows) for ending, rows in options.left_out().items()}
    assert list(refits) == ["one-without-row-3", "one-without-row-17"]
    files = files_of(tmp_path)
    whole = subject("one", None)
    Loo(LooOptions(moment_matching_rows=0)).run(whole, {}, files)
    before = read_pointwise(files["pointwise.zarr"])["left_out"]
    assert f"`loo: {{refit: {np.flatnonzero(before.pareto_k > 0.7).tolist()}}}`" in build_section(files).body
    said = Loo(options).run(whole, refits, files)
    after, sums = read_pointwise(files["pointwise.zarr"])["left_out"], read_sums(files["loo.csv"])
    without = 1 / (1 + 39 / NOISE**2)
    exact = stats.norm.logpdf(x, without * (x.sum() - x) / NOISE**2, np.sqrt(without + NOISE**2))
    assert np.abs(before.elpd - exact)[3] > 0.3
    assert (np.abs(after.elpd - exact) < 5 * after.mcse + 1e-4).all()
    # So far from the others, a row is predicted by few of the draws, with or without it.
    assert (after.mcse[[3, 17]] < 0.25).all()
    np.testing.assert_array_equal(np.flatnonzero(after.is_refit), [3, 17])
    others = after.is_refit == 0
    np.testing.assert_array_equal(after.elpd[others], before.elpd[others])
    # The effective number of parameters is the score with the row less that without it.
    np.testing.assert_allclose(after.elpd + after.effective_parameters, before.elpd + before.effective_parameters)
    assert (sums["num_refit"], sums["num_high_k"], sums["num_matched"]) == (2, 0, 0)
    assert "0 of 40 rows with Pareto k above" in said
    with pytest.raises(ConfigError, match=r"key 'loo.refit': no row 40; there are rows 0 to 39"):
        Loo(LooOptions(refit=(3, 40))).check(whole.bound, {})
    # A row that is impossible at some draws has no known effective number of parameters, and the others keep theirs.
    impossible = dataclasses.replace(before, elpd=np.where(np.arange(40) == 3, -np.inf, before.elpd))
    impossible = dataclasses.replace(
        impossible, effective_parameters=np.where(np.arange(40) == 3, np.inf, before.effective_parameters)
    )
    refit = RefitRows("one", np.array([3]), np.array([-np.inf]), np.ones(1), x[3:4], 1.0, (0.0, 1.0), 10, "fail")
    for elpd in (-np.inf, -9.0):
        found = _with_refits(impossible, [refit._replace(elpd=np.array([elpd]))])
        assert found.effective_parameters[3] == np.inf
        assert found.failed == ("one",)
    assert "The scores of 2 rows come from draws that were sampled without the row" in build_section(files).body


def test_moments_are_matched_in_mean_variance_and_covariance() -> None:
    """From draws of one normal to another, whose expectation of a third density is known."""
    generator = np.random.default_rng(9)
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    row = stats.multivariate_normal([1.0, -1.0], 1.3 * covariance)
    draws = generator.multivariate_normal([0, 0], covariance, 4000)

    def log_density(points: np.ndarray) -> np.ndarray:
        return stats.multivariate_normal([0, 0], covariance).logpdf(points)

    found = match_moments(draws, log_density, row.logpdf, 1.0, 0.0)
    # The row divided out of the normal leaves one of precision 1 - 1/1.3.
    precision = np.linalg.inv(covariance)
    left = np.linalg.inv(precision - precision / 1.3)
    centre = -left @ precision @ [1.0, -1.0] / 1.3
    exact = stats.multivariate_normal(centre, left + 1.3 * covariance).logpdf([1.0, -1.0])
    assert found.pareto_k < 0.7
    assert found.elpd == pytest.approx(exact, abs=max(5 * found.mcse, 0.02))
    first, second = Affine(np.array([[2.0, 1.0], [0.0, 1.0]]), np.ones(2)), Affine(np.diag([3.0, 1.0]), np.zeros(2))
    np.testing.assert_allclose(second.after(first).apply(draws[:3]), second.apply(first.apply(draws[:3])))
    np.testing.assert_allclose(first.invert(first.apply(draws[:3])), draws[:3])


def test_scores_are_those_of_arviz_stats(
    normal_mean: tuple[BoundModel, Posterior, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, posterior, _ = normal_mean
    (block,) = RowLikelihood("loo", bound.model, bound.data_spec, posterior, 2**30).blocks(bound.shards.read_rows, 41)
    mean = np.asarray(posterior.array("posterior", "mean")[...])
    expected = stats.norm.logpdf(bound.shards.read_rows(0, 41)["x"][:, 0], mean, NOISE)
    np.testing.assert_allclose(block.log_likelihood, expected, atol=1e-12)
    (elpd, k, effective, *_), _ = leave_one_out(np.moveaxis(block.log_likelihood, -1, 0))
    r_eff = relative_efficiency(np.moveaxis(block.log_likelihood, -1, 0))
    for row in range(0, 41, 4):
        reference = array_stats.loo(block.log_likelihood[..., row], r_eff=r_eff[row])
        np.testing.assert_allclose([elpd[row], k[row], effective[row]], reference, rtol=0, atol=1e-8)
    # With one efficiency for all rows, as arviz_stats has it, everything is equal to the last step.
    groups = {"posterior": ("mean", mean), "log_likelihood": ("y", block.log_likelihood)}
    tree = xr.DataTree.from_dict(
        {group: xr.Dataset({name: ((CHAIN, DRAW, "place"), values)}) for group, (name, values) in groups.items()}
    )
    monkeypatch.setattr(leave_one_out_module, "efficiency_of", lambda values: np.full(len(values), 0.9))
    scores, _ = _score(block.log_likelihood)
    reference = reference_loo(tree, reff=0.9)
    expected = (reference.elpd, reference.se, reference.p, reference.good_k)
    np.testing.assert_allclose([scores[name] for name in ("elpd", "elpd_se", "p_loo", "good_k")], expected, rtol=1e-10)


def _score(log_likelihood: np.ndarray) -> tuple[dict[str, float], RowScores]:
    (elpd, k, effective, mcse, _), _ = leave_one_out(np.moveaxis(log_likelihood, -1, 0))
    scores = RowScores(elpd, "", False, log_likelihood[..., 0].size, k, effective, mcse)
    return summarise(scores, None), scores


def test_a_regression_with_known_noise_has_its_exact_scores_in_the_order_of_the_source(tmp_path: Path) -> None:
    """Rows lie sorted by group in the prepared shards; draws of the latents are exact, so nothing is sampled."""
    generator = np.random.default_rng(4)
    num_rows, num_groups = 60, 6
    group, x = generator.integers(0, num_groups, num_rows).astype(np.int32), generator.standard_normal(num_rows)
    y = 1 + 0.5 * x + NOISE * generator.standard_normal(num_rows)
    effects = np.arange(num_groups) - 2.5
    held = {"y": y[:9] + effects[group[:9]], "x": x[:9] - 1, "site": group[:9]}
    path = write_shards(tmp_path, Dataset({"y": y + effects[group], "x": x, "site": group}, held))
    options = GlmOptions(formula="y ~ x + (1 | site)", local_group="site", centred=("site",))
    shards = prepared(path, lambda spec, read: Glm.prepare(options, spec, read))
    spec = shards.spec("float64")
    model = Glm(options, spec)
    # Columns are standardised; effects of groups and sigma are known, and coefficients a flat prior.
    design = np.column_stack([np.ones(num_rows), x - x.mean()])
    covariance = NOISE**2 * np.linalg.inv(design.T @ design)
    mean = covariance @ design.T @ y / NOISE**2
    draws = generator.multivariate_normal(mean, covariance, (4, 1000))
    latents = {
        "intercept": draws[..., 0], "coefficients": draws[..., 1:], "sigma": np.full((4, 1000), NOISE),
        "sd_site": np.ones((4, 1000, 1)), "effects_site": np.broadcast_to(effects[:, None], (4, 1000, num_groups, 1)),
    }  # fmt: skip
    files = files_of(tmp_path)
    leave_out_rows(BoundModel(model, spec, shards), write_posterior(tmp_path, latents), 2**26, files)
    leverage = np.einsum("ri,ij,rj->r", design, covariance, design) / NOISE**2
    residual = (y - design @ mean) / (1 - leverage)
    exact = stats.norm.logpdf(residual, 0, NOISE * np.sqrt(1 + leverage / (1 - leverage)))
    scores = read_pointwise(files["pointwise.zarr"])["left_out"]
    assert shards.source_rows().tolist() != list(range(num_rows))
    # Before sampling: an experiment of float32, in a process in which float64 is on, with the float64 of its table.
    single, shapes = shards.spec("float32"), {k: np.zeros(v.shape[2:], np.float32) for k, v in latents.items()}
    with jax.enable_x64(True):
        Loo(LooOptions()).check(BoundModel(Glm(options, single), single, shards), shapes)
    # Held-out rows have the effects of their groups, and the posterior of all training rows.
    new = np.column_stack([np.ones(9), x[:9] - 1 - x.mean()])
    spread = np.sqrt(NOISE**2 + np.einsum("ri,ij,rj->r", new, covariance, new))
    held_out = read_pointwise(files["pointwise.zarr"])["held_out"]
    np.testing.assert_allclose(held_out.elpd, stats.norm.logpdf(y[:9], new @ mean, spread), atol=0.05)
    # The place of each outcome in its predictive distribution without it.
    place = stats.norm.cdf(residual, 0, NOISE * np.sqrt(1 + leverage / (1 - leverage)))
    np.testing.assert_allclose(scores.pit, place, atol=0.05)
    assert (np.abs(scores.elpd - exact) < 5 * scores.mcse + 1e-4).all()


def test_what_cannot_be_left_out_is_refused_with_a_reason(
    normal_mean: tuple[BoundModel, Posterior, np.ndarray], tmp_path: Path
) -> None:
    bound, posterior, _ = normal_mean
    spec = DataSpec(3, {"watched": FieldSpec((4,), "uint8")}, {"num_films": 4})
    with pytest.raises(ConfigError, match=r"key 'loo': .* latents for each row \(user_biases, user_embeddings\)"):
        check_rows("loo", MatrixFactorization(declared_options("matrix_factorization"), spec), spec)

    last = bound.shards.read_rows(40, 41)["x"][0, 0]

    class Weighted(Gaussian):
        def log_likelihood(self, latents, rows):
            # Of the last row alone, which is in the last block.
            return super().log_likelihood(latents, rows) * (1 + (rows["x"][:, 0] == last))

    class Whole(Gaussian):
        takes_all_rows = True

    class Silent(Gaussian):
        def predict(self, latents, inputs):
            raise NotImplementedError("nothing is predicted")

    # Before sampling, on shapes alone.
    silent = bound._replace(model=Silent(GaussianOptions(), bound.data_spec))
    with pytest.raises(ConfigError, match="key 'loo': nothing is predicted"):
        Loo(LooOptions()).check(silent, {"mean": np.zeros(1)})
    Loo(LooOptions()).check(bound, {"mean": np.zeros(1)})
    weighted = bound._replace(model=Weighted(GaussianOptions(), bound.data_spec))
    with pytest.raises(ConfigError, match=r"log likelihood of row 41, counted from 1, is .* weights"):
        leave_out_rows(weighted, posterior, 16 * 8 * 4000, files_of(tmp_path))
    roles = dataclasses.replace(bound.data_spec, roles={"weights": "count"})
    with pytest.raises(ConfigError, match=r"key 'loo': rows have weights \('count'\)"):
        check_rows("loo", bound.model, roles)
    with pytest.raises(ConfigError, match="takes all rows as one"):
        check_rows("loo", Whole(GaussianOptions(), bound.data_spec), bound.data_spec)


def declared_options(model: str) -> object:
    from bayesmesh.config.registry import resolve_component

    return resolve_component("model", model, {})[1]


@pytest.mark.parametrize("mean", [0.7, 40.0, 1e6])
def test_counts_are_below_the_observed_one_with_their_probability(mean: float) -> None:
    y = np.floor(mean + np.array([-1.5, 0, 0.3, 2]) * np.sqrt(mean)).clip(0)
    ties, key, shape = np.array([0.1, 0.4, 0.6, 0.9]), jax.random.key(1), 3.0
    wide = tfp.distributions.NegativeBinomial(jnp.full(4, shape), logits=jnp.full(4, np.log(mean / shape)))
    cases = (
        (tfp.distributions.Poisson(jnp.full(4, mean)), stats.poisson(mean)),
        (wide, stats.nbinom(shape, shape / (shape + mean))),
    )
    for predictive, known in cases:
        found = below(predictive, jnp.asarray(y, int), jnp.asarray(ties), key)
        np.testing.assert_allclose(found, known.cdf(y - 1) + ties * known.pmf(y), atol=3e-5)


def test_large_counts_in_float32_are_simulated() -> None:
    """Their distribution functions are wrong by 0.8 there."""
    ties = np.float32([0.1, 0.4, 0.6, 0.9])
    single = tfp.distributions.Poisson(jnp.full(4, 1e6, jnp.float32))
    found = below(single, jnp.full(4, 1_000_000), jnp.asarray(ties), jax.random.key(1))
    assert np.isin(found, np.float32([0, 1, *ties])).all()
