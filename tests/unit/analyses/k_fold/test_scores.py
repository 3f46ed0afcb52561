"""Folds of rows, of groups and of later times against the closed form of a linear model with normal effects of groups."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.analyses.k_fold.analysis import KFold
from bayesmesh.analyses.k_fold.tables import read_folds, read_sums
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.verdict import NumCoordinates, Verdict, write_verdict
from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.scores import read_pointwise

tfd = tfp.distributions

NUM_GROUPS, NOISE, SPREAD, SHAPE = 6, 0.8, 1.2, (4, 1500)
GROUP = np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 5, 5, 5])
TIME = np.array([3, 3, 1, 2, 2, 1, 4, 5, 5, 6, 6, 7, 8, 9, 9, 9, 10, 11, 12, 13])
OUTCOME = (
    0.5
    + np.random.default_rng(4).standard_normal(NUM_GROUPS)[GROUP]
    + NOISE * np.random.default_rng(5).standard_normal(len(GROUP))
)


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


class Effects(Model):
    """Rows ``y`` ~ N(mean + effect[group], NOISE^2); mean ~ N(0, 1), effects ~ N(0, SPREAD^2)."""

    pretty_name = "Effects of groups"
    offers = ()

    def prior(self, data_spec: DataSpec) -> Prior:
        effects = tfd.Sample(tfd.Normal(0.0, SPREAD), NUM_GROUPS)
        return tfd.JointDistributionNamed({"mean": tfd.Normal(0.0, 1.0), "effect": effects})

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(latents["mean"] + latents["effect"][inputs["group"]], jnp.asarray(NOISE, jnp.float64))

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["y"])

    def outcome(self, rows: Rows) -> jax.Array:
        return rows["y"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        return latents


def posterior_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of (mean, effects) given some rows."""
    design = np.column_stack([np.ones(len(rows)), GROUP[rows, None] == np.arange(NUM_GROUPS)])
    precision = np.diag([1.0, *[SPREAD**-2] * NUM_GROUPS]) + design.T @ design / NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ design.T @ OUTCOME[rows] / NOISE**2, covariance


def subject(
    folder: Path,
    name: str,
    stays: np.ndarray,
    seed: int,
    left_out: LeftOut | None = None,
    verdict: Literal["pass", "fail"] = "pass",
) -> Subject:
    """An experiment with exact draws of the posterior of the rows that stay."""
    data, layout = DataLayout(folder, "data", name), ExperimentLayout(folder, name)
    shard(Dataset({"y": OUTCOME, "group": GROUP, "time": TIME}), DataSettings(left_out=left_out), data)
    draws = np.random.default_rng(seed).multivariate_normal(*posterior_of(stays), SHAPE)
    group = open_group(layout.posterior, "w").create_group("posterior")
    write_array(group, "mean", draws[..., 0], (CHAIN, DRAW))
    write_array(group, "effect", draws[..., 1:], (CHAIN, DRAW, "group"))
    shards = Shards(data.shards)
    spec = shards.spec("float64")
    layout.verdict.parent.mkdir(parents=True)
    numbers = NumCoordinates(summaries=7, latents=7, listed=14)
    write_verdict(layout.verdict, Verdict(
        verdict=verdict, gates=(), experiment=name, num_chains=SHAPE[0], num_draws=SHAPE[1], num_coordinates=numbers,
        latents={}, num_divergences=0, divergence_share=0.0, bfmi=(), acceptance_rate=None,
    ))  # fmt: skip
    return Subject(layout, lambda: BoundModel(Effects(Settings(), spec), spec, shards))


def run(
    folder: Path, options: Options, stays_of: Mapping[int, np.ndarray], verdict: Literal["pass", "fail"] = "pass"
) -> dict[str, Path]:
    """Return the files of cross-validation with exact draws of every fold."""
    whole = subject(folder, "own", np.arange(len(GROUP)), 1)
    refits = {
        f"own-{ending}": subject(folder, f"own-{ending}", stays_of[rows.fold], rows.fold + 1, rows, verdict)
        for ending, rows in options.left_out().items()
    }
    files = declared("k_fold").files(whole.layout.folder)
    files["k_fold.csv"].parent.mkdir()
    KFold(options).run(whole, refits, files)
    return files


def exact(row: np.ndarray, stays: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the log predictive density of each of some rows given others, and of all together."""
    mean, covariance = posterior_of(stays)
    design = np.column_stack([np.ones(len(row)), GROUP[row, None] == np.arange(NUM_GROUPS)])
    spread = design @ covariance @ design.T + NOISE**2 * np.eye(len(row))
    single = stats.norm.logpdf(OUTCOME[row], design @ mean, np.sqrt(np.diag(spread)))
    return single, float(stats.multivariate_normal.logpdf(OUTCOME[row], design @ mean, spread))


def folds_of(folder: Path, options: Options) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return fold -> rows that are left out and that stay, as the shards have them."""
    found = {}
    for rows in options.left_out().values():
        data = DataLayout(folder, "tried", str(rows.fold))
        shard(
            Dataset({"y": OUTCOME, "group": GROUP, "time": TIME, "row": np.arange(len(GROUP))}),
            DataSettings(left_out=rows),
            data,
        )
        left_out = Shards(data.shards).left_out()
        assert left_out is not None
        found[rows.fold] = left_out, Shards(data.shards).read_rows(0, Shards(data.shards).num_rows)["row"]
    return found


@pytest.mark.parametrize(
    "options",
    [
        Options(folds=4, strata="group"),
        Options(folds=3, group="group"),
        Options(folds=3, future="time", first_share=0.4),
    ],
    ids=["rows", "groups", "future"],
)
def test_scores_are_the_exact_predictive_densities(options: Options, tmp_path: Path) -> None:
    folds = folds_of(tmp_path, options)
    files = run(tmp_path, options, {fold: stays for fold, (_, stays) in folds.items()})
    scores, table = read_pointwise(files["pointwise.zarr"])["left_out"], read_folds(files["folds.csv"])
    rows = np.concatenate([row for row, _ in folds.values()])
    expected = np.full(len(GROUP), np.nan)
    for (row, stays), fold in zip(folds.values(), table, strict=True):
        expected[row], together = exact(row, stays)
        assert fold.joint_elpd == pytest.approx(together, abs=5 * fold.joint_mcse)
        assert fold.elpd == pytest.approx(expected[row].sum(), abs=5 * fold.elpd_mcse)
        # Rows of a new group share the draws of its effect, and their errors do not cancel.
        independent = np.sqrt(np.square(scores.mcse[np.isin(np.sort(rows), row)]).sum())
        assert fold.elpd_mcse > 1.2 * independent or not options.group
        assert (fold.num_rows, fold.num_training_rows) == (len(row), len(stays))
        if options.group:
            assert not set(GROUP[row]) & set(GROUP[stays])
        if options.future:
            assert TIME[row].min() > TIME[stays].max()
    expected = expected[np.sort(rows)]
    assert (np.abs(scores.elpd - expected) < 5 * scores.mcse + 1e-9).all()
    # Errors are as large as they say, neither larger nor smaller.
    assert 0.4 < np.sqrt(np.mean(((scores.elpd - expected) / scores.mcse) ** 2)) < 1.6
    found = read_sums(files["k_fold.csv"])
    assert found is not None
    sums, scheme = found
    assert sums["elpd"] == pytest.approx(expected.sum(), abs=5 * sums["elpd_mcse"])
    assert sums["elpd_mcse"] == pytest.approx(np.linalg.norm([fold.elpd_mcse for fold in table]))
    assert scores.monte_carlo_error == pytest.approx(sums["elpd_mcse"])
    assert sums["num_clusters"] == (NUM_GROUPS if options.group else len(rows))
    assert scheme == scores.scheme
    assert (scores.row is None) == (options.future is None)
    if options.future:
        np.testing.assert_array_equal(scores.row, np.sort(rows))
    assert f"elpd {sums['elpd']:.1f}".replace("-", "−") in KFold(options).cell(files)
    said = html.unescape(KFold(options).section(files).body)
    assert scheme in said
    assert ("A standard error over 6 groups is itself uncertain" in said) == bool(options.group)
