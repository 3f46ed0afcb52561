"""Sensitivities are those of arviz_stats, and tell a narrow prior, weak data and a good fit apart."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr
from arviz_stats import psense

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.options import SensitivityOptions as Options
from bayesmesh.analyses.sensitivity.analysis import THRESHOLD, Sensitivity, read_sensitivities, sentences
from bayesmesh.analyses.sensitivity.power_scaling import POWERS, _sensitivity, _weights, scale_powers
from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.models.gaussian import Options as GaussianOptions
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior

NOISE, SHAPE = 2.0, (4, 500)


def fitted(folder: Path, prior_scale: float, centre: float, num_rows: int) -> tuple[BoundModel, Posterior, np.ndarray]:
    """A normal mean in two coordinates, and exact draws: ``mean``, and its difference as a summary."""
    jax.config.update("jax_enable_x64", True)
    generator = np.random.default_rng(2)
    x = centre + NOISE * generator.standard_normal((num_rows, 2))
    layout = DataLayout(folder, "data", "all")
    shard(Dataset({"x": x}, constants={"noise_scale": NOISE}), DataSettings(held_out_fraction=0.0), layout)
    shards = Shards(layout.shards)
    spec = shards.spec("float64")
    precision = 1 / prior_scale**2 + num_rows / NOISE**2
    draws = x.sum(0) / NOISE**2 / precision + generator.standard_normal((*SHAPE, 2)) / np.sqrt(precision)
    path = ExperimentLayout(folder, "one").posterior
    root = open_group(path, "w")
    write_array(root.create_group("posterior"), "mean", draws, (CHAIN, DRAW, "mean_dim_0"))
    summaries = root.create_group("summaries")
    write_array(summaries, "difference", draws[..., 0] - draws[..., 1], (CHAIN, DRAW))
    write_array(summaries, "log_density", np.zeros(SHAPE), (CHAIN, DRAW))
    model = Gaussian(GaussianOptions(prior_scale=prior_scale), spec)
    return BoundModel(model, spec, shards), open_posterior(path), x


def test_sensitivities_are_those_of_arviz_stats(tmp_path: Path) -> None:
    bound, posterior, x = fitted(tmp_path, 0.5, 3.0, 20)
    path = tmp_path / "sensitivity.csv"
    scale_powers(bound, posterior, Options(), path)
    found = read_sensitivities(path).set_index("quantity")
    assert list(found.index) == ["difference", "mean[0]", "mean[1]"]
    mean = np.asarray(posterior.array("posterior", "mean")[...])
    groups = {
        "posterior": mean[..., 0],
        "log_prior": (-0.5 * (mean / 0.5) ** 2).sum(-1),
        "log_likelihood": (-0.5 * ((x - mean[:, :, None]) / NOISE) ** 2).sum((-1, -2)),
    }
    tree = xr.DataTree.from_dict({k: xr.Dataset({"v": ((CHAIN, DRAW), v)}) for k, v in groups.items()})
    for component in ("prior", "likelihood"):
        expected = float(psense(tree, group=component)["v"])
        assert found.loc["mean[0]", component] == pytest.approx(expected, rel=1e-6)
    assert (found.loc[["mean[0]", "mean[1]"]] > THRESHOLD).all(axis=None), "a narrow prior far from the data"
    assert "Prior and data are in conflict about" in Sensitivity(Options()).section({"sensitivity.csv": path}).body
    assert Sensitivity(Options()).cell({"sensitivity.csv": path}).startswith("prior and data in conflict: mean[")


def test_good_priors_and_weak_data_are_told_apart(tmp_path: Path) -> None:
    bound, posterior, _ = fitted(tmp_path / "wide", 50.0, 0.5, 40)
    path = tmp_path / "sensitivity.csv"
    scale_powers(bound, posterior, Options(draws=1000), path)
    assert "the data decide" in " ".join(sentences(read_sensitivities(path)))
    assert Sensitivity(Options()).cell({"sensitivity.csv": path}) == ""
    bound, posterior, _ = fitted(tmp_path / "weak", 0.02, 0.0, 2)
    scale_powers(bound, posterior, Options(), path)
    table = read_sensitivities(path)
    assert "the posterior follows the prior" in " ".join(sentences(table))
    assert (table["likelihood"] < THRESHOLD).all()


def test_a_flat_prior_has_no_sensitivity_and_ties_are_not_smoothed() -> None:
    draws = np.random.default_rng(1).standard_normal(2000)
    assert _sensitivity(draws, _weights(np.full(2000, -3.0))) == pytest.approx(0, abs=1e-6)
    tied = _weights(np.where(draws > 0, -1.0, -2.0))
    for weights, power in zip(tied, POWERS, strict=True):
        assert weights[draws > 0][0] / weights[draws < 0][0] == pytest.approx(np.exp(power - 1))
    assert _sensitivity(draws, tied) > 0
