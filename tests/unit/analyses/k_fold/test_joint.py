"""Folds of models that take all rows as one, against the closed form of a linear regression; and what cannot be left out."""

from __future__ import annotations

import html
import importlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.analyses.k_fold.analysis import KFold
from bayesmesh.analyses.k_fold.joint import SomeRows
from bayesmesh.analyses.k_fold.tables import read_folds
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.data.base import Dataset, DataSpec, FieldSpec
from bayesmesh.data.sharding import shard
from bayesmesh.data.views import WholeShards
from bayesmesh.errors import ConfigError
from bayesmesh.models import log_density
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.scores import read_pointwise

tfd = tfp.distributions

NOISE, SHAPE, NUM_ROWS = 0.7, (4, 1000), 24
X = np.random.default_rng(1).standard_normal(NUM_ROWS)
Y = 0.4 + 1.1 * X + NOISE * np.random.default_rng(2).standard_normal(NUM_ROWS)
GROUP, TIME = np.arange(NUM_ROWS) % 6, np.repeat(np.arange(8), 3)
FIELDS = {"x": X, "y": Y, "group": GROUP, "time": TIME}
DESIGN = np.column_stack([np.ones(NUM_ROWS), X])


def regression(latents, data):
    expected = latents["coefficients"][0] + latents["coefficients"][1] * data["x"]
    return tfd.Normal(expected, NOISE).log_prob(data["y"]).sum()


def walk(latents, data):
    """Each row depends on the one before it."""
    before = jnp.concatenate([jnp.zeros(1, data["y"].dtype), data["y"][:-1]])
    return tfd.Normal(latents["coefficients"][0] * before, NOISE).log_prob(data["y"]).sum()


def stationary(latents, data):
    """A series that is as likely in reverse."""
    first, last, inner = data["y"][:-1], data["y"][1:], data["y"][1:-1]
    slope = 0.9 * jnp.tanh(latents["coefficients"][0])
    return ((last * first).sum() * slope - 0.5 * slope**2 * (inner**2).sum()) / NOISE**2


def nowhere_finite(latents, data):
    return regression(latents, data) - jnp.inf


def of_fixed_length(latents, data):
    return -((data["y"] - jnp.arange(NUM_ROWS)) ** 2).sum() + latents["coefficients"][0]


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def bound(
    folder: Path, name: str, function: str = "regression", left_out: LeftOut | None = None, **more: Any
) -> BoundModel:
    data = DataLayout(folder, "data", name)
    shard(Dataset(FIELDS), DataSettings(left_out=left_out), data)
    options = log_density.Options(function=f"{__name__}:{function}", prior={"coefficients": "normal(0, 1)[2]"}, **more)
    shards = WholeShards(data.shards, lambda spec, read: None)
    spec = shards.spec("float32")
    return BoundModel(log_density.LogDensity(options, spec), spec, shards)


def posterior_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the coefficients given some rows."""
    covariance = np.linalg.inv(np.eye(2) + DESIGN[rows].T @ DESIGN[rows] / NOISE**2)
    return covariance @ DESIGN[rows].T @ Y[rows] / NOISE**2, covariance


def subject(folder: Path, name: str, left_out: LeftOut | None = None) -> tuple[Subject, np.ndarray, np.ndarray]:
    """An experiment with exact draws given the rows that stay; the rows that are left out, and those that stay."""
    found, layout = bound(folder, name, left_out=left_out), ExperimentLayout(folder, name)
    rows = found.shards.read_rows(0, 1)
    stays = np.flatnonzero(np.isin(X, rows["x"][0]))
    draws = np.random.default_rng(len(name) + len(stays)).multivariate_normal(*posterior_of(stays), SHAPE)
    group = open_group(layout.posterior, "w").create_group("posterior")
    write_array(group, "coefficients", draws, (CHAIN, DRAW, "coefficient"))
    gone = found.shards.left_out()
    return Subject(layout, lambda: found), np.zeros(0, int) if gone is None else gone, stays


@pytest.mark.parametrize(
    "options",
    [Options(folds=3, group="group"), Options(folds=3, future="time", first_share=0.4)],
    ids=["groups", "future"],
)
def test_folds_have_the_exact_predictive_density_of_their_rows_together(options: Options, tmp_path: Path) -> None:
    whole, _, _ = subject(tmp_path, "own")
    made = {f"own-{ending}": subject(tmp_path, f"own-{ending}", rows) for ending, rows in options.left_out().items()}
    files = declared("k_fold").files(whole.layout.folder)
    files["k_fold.csv"].parent.mkdir()
    KFold(options).check(whole.bound, {})
    KFold(options).run(whole, {name: each[0] for name, each in made.items()}, files)
    folds, scores = read_folds(files["folds.csv"]), read_pointwise(files["pointwise.zarr"])["left_out"]
    assert [fold.experiment for fold in folds] == [*made]
    for fold, (_, row, stays) in zip(folds, made.values(), strict=True):
        mean, covariance = posterior_of(stays)
        spread = DESIGN[row] @ covariance @ DESIGN[row].T + NOISE**2 * np.eye(len(row))
        exact = stats.multivariate_normal.logpdf(Y[row], DESIGN[row] @ mean, spread)
        assert fold.joint_elpd == pytest.approx(exact, abs=5 * fold.joint_mcse)
        assert fold.joint_mcse < 0.2
        assert (fold.num_rows, fold.num_training_rows) == (len(row), len(stays))
    np.testing.assert_allclose(scores.elpd, [fold.joint_elpd for fold in folds])
    assert "each fold scored as one" in scores.scheme
    said = html.unescape(KFold(Options()).section(files).body)
    assert "The model takes all rows as one" in said
    assert "standard error over 3 folds is itself uncertain" in said


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("walk", Options(), "depends on the order of the rows .*future: FIELD` leaves out what comes last"),
        ("walk", Options(future="group"), "depends on the order of the rows .*not in the order of 'group'"),
        ("stationary", Options(), "depends on the order of the rows .* in another order"),
        ("nowhere_finite", Options(), "is not finite at 4 draws of its prior"),
        ("of_fixed_length", Options(), "has no likelihood of fewer rows, so that none can be left out: "),
        ("of_fixed_length", Options(future="time"), "has no likelihood of fewer rows"),
    ],
)
def test_rows_that_cannot_be_left_out_are_refused(
    function: str, options: Options, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        KFold(options).check(bound(tmp_path, "own", function), {})
    assert "key 'k_fold" in str(error.value)


def test_the_future_of_rows_that_depend_on_each_other_can_be_left_out(tmp_path: Path) -> None:
    KFold(Options(future="time")).check(bound(tmp_path, "own", "walk"), {})


def numpyro_regression(x, y):
    import numpyro

    slope = numpyro.sample("slope", numpyro.distributions.Normal(0, 1))
    numpyro.sample("y", numpyro.distributions.Normal(slope * x, NOISE).to_event(1), obs=y)


def pymc_regression(rows):
    import pymc

    with pymc.Model() as model:
        slope = pymc.Normal("slope", 0, 1)
        pymc.Normal("y", slope * rows["x"], NOISE, observed=rows["y"])
    return model


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("package", "options"), [("numpyro", {"whole": True}), ("pymc", {"whole": True}), ("pymc", {"given": "arrays"})]
)
def test_models_of_other_libraries_have_the_density_of_the_rows_left_out(package: str, options: dict[str, Any]) -> None:
    module = importlib.import_module(f"bayesmesh.models.{package}.model")
    cls = {"numpyro": "NumpyroFunction", "pymc": "PymcFunction"}[package]
    rows = {"x": X, "y": Y}
    spec = DataSpec(1, {name: FieldSpec(values.shape, "float64") for name, values in rows.items()}, {})
    unbound = object.__new__(getattr(module, cls))
    unbound.options = module.Options(function=f"{__name__}:{package}_regression", **options)
    whole, kept = (
        SomeRows(unbound, spec, rows, "float64"),
        SomeRows(unbound, spec, {name: values[:20] for name, values in rows.items()}, "float64"),
    )
    draw = {"slope": jnp.asarray(0.3)}
    exact = stats.norm.logpdf(Y[20:], 0.3 * X[20:], NOISE).sum()
    assert float(whole.log_likelihood(draw) - kept.log_likelihood(draw)) == pytest.approx(exact, rel=1e-12)
