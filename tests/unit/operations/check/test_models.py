"""The verb `check`: each kind of mistake in a model is seen, and named in words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.registry import component_path
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.gaussian import Gaussian, Options
from bayesmesh.operations.check import models
from bayesmesh.operations.check.models import Subject, find_subject

tfd = tfp.distributions

ROOT = Path(__file__).parents[4]


def subject_of(model_class: type[Gaussian], num_rows: int = 13) -> Subject:
    rows = {"x": 0.5 + np.random.default_rng(0).standard_normal((num_rows, 2))}
    spec = DataSpec(num_rows, {"x": FieldSpec((2,), "float64")}, {"noise_scale": 1.0}, "float64")
    return Subject("test", "rows of a test", component_path("model", "gaussian"), model_class, Options(), spec, rows)


class WrongGradient(Gaussian):
    """Its own fast path forgets a factor."""

    def log_likelihood_and_gradient(self, latents, rows, is_row):
        value, gradient = super().log_likelihood_and_gradient(latents, rows, is_row)
        return value, jax.tree.map(lambda g: 1.1 * g, gradient)


class Averaging(Gaussian):
    """The likelihood of a row looks at the others."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return super().log_likelihood(latents, {"x": rows["x"] - rows["x"].mean(axis=0, keepdims=True)})


class Infinite(Gaussian):
    """Not a number for half of the prior."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return super().log_likelihood(latents, rows) + jnp.log(latents["mean"][0])


class LogNormalWithoutJacobian(tfd.LogNormal):
    """Its density is that of the logarithm."""

    def _log_prob(self, value):
        return super()._log_prob(value) + jnp.log(value)


class OtherPrior(Gaussian):
    """Draws of the prior are not those of its density."""

    def prior(self, data_spec: Any) -> Any:
        zero = jnp.zeros((), data_spec.dtype)
        return tfd.JointDistributionNamed({"mean": tfd.Sample(LogNormalWithoutJacobian(zero, zero + 1), 2)})


class Misshapen(Gaussian):
    """One number for all rows."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return super().log_likelihood(latents, rows).sum()


class OtherNoise(Gaussian):
    """Predicts with three times the noise that its likelihood has."""

    def predict(self, latents: Any, inputs: Any) -> Any:
        mean = jnp.broadcast_to(latents["mean"], inputs["x"].shape)
        return tfd.Independent(tfd.Normal(mean, jnp.full_like(mean, 3)), 1)


FAST = ("prior", "gradient", "sharding", "prediction")


@pytest.fixture
def fast(monkeypatch) -> None:
    """Leave out the checks that sample."""
    monkeypatch.setattr(models, "CHECKS", {k: models.CHECKS[k] for k in FAST})


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("model_class", "name", "said"),
    [
        (WrongGradient, "gradient", "by latent 'mean' it differs"),
        (Averaging, "sharding", "tiles of rows and padding change"),
        (Infinite, "prior", "of 64 draws have a finite"),
        (OtherPrior, "prior", "the draws of latent 'mean' are not those of its density"),
        (Misshapen, "shapes", "for 2 rows"),
    ],
)
def test_a_mistake_is_named(model_class: type[Gaussian], name: str, said: str) -> None:
    lines = {line.name: line for line in models.check(subject_of(model_class))}
    failed = lines[name]
    assert failed.state == models.FAILS
    assert said in failed.seen
    assert failed.remedy
    assert "remedy: " in failed.text()


@pytest.mark.usefixtures("fast")
def test_a_right_model_passes() -> None:
    lines = list(models.check(subject_of(Gaussian)))
    assert [line.name for line in lines] == ["options", "shapes", *FAST]
    assert {line.state for line in lines} == {models.OK}


def test_calibration_sees_predictions_of_another_distribution(monkeypatch) -> None:
    """Calibration and a short run; the numbers are small, for the defect is large."""
    monkeypatch.setattr(models, "NUM_DATASETS", 40)
    monkeypatch.setattr(models, "NUM_WARMUP", 80)
    monkeypatch.setattr(models, "CHECKS", {k: models.CHECKS[k] for k in ("calibration", "sampling")})
    lines = {line.name: line for line in models.check(subject_of(OtherNoise))}
    assert lines["calibration"].state == models.FAILS
    assert "are not uniform" in lines["calibration"].seen
    assert lines["sampling"].state == models.OK


def test_a_model_of_one_s_own_is_checked_on_built_in_data(tmp_path: Path, monkeypatch) -> None:
    text = component_path("model", "gaussian").read_text()
    (tmp_path / "misread.py").write_text(text.replace('rows["x"].astype(mean.dtype)', 'rows["y"].astype(mean.dtype)'))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(ROOT / "config")
    with pytest.raises(ConfigError, match="reads none of the built-in data"):
        find_subject("misread:Gaussian", None)
    assert dataclasses.is_dataclass(find_subject("misread:Gaussian", "gaussian").spec)
