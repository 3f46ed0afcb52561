"""Chains start at the points of a file or of the model, plus noise; what is wrong with them is named with key and latent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.blocks import InitialSettings
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program import start_points
from bayesmesh.sampling.program.start_points import (
    MIRRORED,
    choose_points,
    component_axes,
    find_points,
    num_together,
    place_starts,
)

tfd = tfp.distributions
KEY = "experiment 'mine': key 'sampling.initial.file': "
FIRST = np.zeros(3, np.uint32)
NONE = jnp.zeros(3, jnp.uint32)


class Positive(Model):
    """A mean of two numbers and a positive noise, which may start from the data."""

    pretty_name = "Positive"
    offers = ()

    def prior(self, data_spec: Any) -> Any:
        zero = jax.numpy.zeros((), data_spec.dtype)
        return tfd.JointDistributionNamed(
            {"mean": tfd.Sample(tfd.Normal(zero, zero + 1), 2), "noise": tfd.HalfNormal(zero + 1)}
        )

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return self.predict(latents, rows).log_prob(rows["x"])

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Normal(latents["mean"][0] + 0 * inputs["x"], latents["noise"])

    def summaries(self, latents: Any, rows: Any) -> Any:
        return latents


class Broad(Positive):
    """Many numbers with standard normal priors."""

    def prior(self, data_spec: Any) -> Any:
        zero = jax.numpy.zeros((), data_spec.dtype)
        return tfd.JointDistributionNamed({"mean": tfd.Sample(tfd.Normal(zero, zero + 1), 100)})


class FromData(Positive):
    def starting_point(self, read_blocks: Any) -> Any:
        x = np.concatenate([block["x"] for block in read_blocks()])
        return {"mean": np.full(2, x.mean()), "noise": x.std()}


class Mixed(Positive):
    """Three components that may change their places, ordered scales, and a latent that has nothing to do with them."""

    def prior(self, data_spec: Any) -> Any:
        one = jax.numpy.ones((), data_spec.dtype)
        normal = tfd.Normal(0 * one, one)
        ordered = tfd.TransformedDistribution(tfd.Sample(normal, 3), tfp.bijectors.Ascending())
        # A prior whose map holds a number, in its own dtype.
        scaled = tfd.TransformedDistribution(tfd.Sample(normal, (2, 3)), tfp.bijectors.Scale(3 * one))
        parts = {"weights": tfd.Dirichlet(jax.numpy.full(3, 1.0, data_spec.dtype)), "mean": scaled}
        return tfd.JointDistributionNamed({**parts, "scales": ordered, "slope": tfd.Sample(normal, 4)})


def make(cls: type[Model] = Positive, dtype: str = "float64") -> Target:
    jax.config.update("jax_enable_x64", True)
    spec = DataSpec(4, {"x": FieldSpec((), "float64")}, {}, dtype)
    return Target(cls(Settings(), spec), spec, lay_out_rows(4, 1, 4))


def points_of(path: Path, target: Target | None = None) -> Any:
    return find_points("experiment 'mine'", InitialSettings(method="file", file=str(path)), target or make(), None)


def latents_of(target: Target, position: Any, chain: int) -> dict[str, np.ndarray]:
    return {
        k: np.asarray(v)
        for k, v in target.constrain(jax.tree.map(lambda x: jax.numpy.asarray(x[chain]), position)).items()
    }


def test_chains_take_the_points_of_a_file_in_turn(tmp_path: Path) -> None:
    """Two points for the mean and one for the noise; the second group of three chains begins with the second point."""
    file, target = tmp_path / "start.json", make()
    file.write_text(json.dumps({"mean": [[1, 2], [3, 4]], "noise": 0.5}))
    points = points_of(file, target)
    np.savez(tmp_path / "start.npz", mean=[[1, 2], [3, 4]], noise=[0.5, 0.5])
    np.testing.assert_array_equal(points_of(tmp_path / "start.npz", target).shared, points.shared)
    keys = jax.random.split(jax.random.key(0), 3)
    starts = place_starts("file", target, keys, FIRST, 0.0, choose_points(points, 3, 3), NONE)
    for chain, mean in enumerate([[3, 4], [1, 2], [3, 4]]):
        found = latents_of(target, starts, chain)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-12)
        np.testing.assert_allclose(found["noise"], 0.5, rtol=1e-12)
    noisy = place_starts("file", target, keys, FIRST, 0.1, choose_points(points, 3, 3), NONE)
    off = np.asarray(noisy.shared - starts.shared) / 0.1
    origin = place_starts("zero", target, keys, FIRST, 1.0, None, NONE)
    np.testing.assert_allclose(off, origin.shared, rtol=1e-9)


@pytest.mark.parametrize("method", ["auto", "uniform", "prior", "zero"])
def test_every_second_start_of_a_box_or_of_a_narrow_prior_is_a_reflection(method: str) -> None:
    target, keys = make(), jax.random.split(jax.random.key(0), 3)[np.array([0, 0, 1, 1, 2, 2])]
    numbers = jnp.arange(6, dtype=jnp.uint32)
    starts = place_starts(method, target, keys, np.zeros(6, np.uint32), 1.0, None, numbers).shared
    assert (starts.std(axis=0) > 0.1).all()
    if method not in MIRRORED:
        np.testing.assert_array_equal(starts[::2], starts[1::2])
        return
    centers = (starts[::2] + starts[1::2]) / 2
    np.testing.assert_allclose(centers, np.broadcast_to(centers[0], centers.shape), atol=1e-12)
    assert (np.abs(centers[0]) < (1e-12 if method == "uniform" else 3)).all()


def test_reflections_of_a_prior_leave_none_of_its_sides_to_most_chains() -> None:
    """The center is off by 0.15 standard deviations in the root mean square; the mean of eight draws is by 0.35."""
    target, keys = make(Broad), jax.random.split(jax.random.key(0), 1)[np.array([0, 0])]
    starts = place_starts("auto", target, keys, np.zeros(2, np.uint32), 1.0, None, jnp.arange(2, dtype=jnp.uint32))
    assert 0.05 < np.sqrt((starts.shared.sum(axis=0) ** 2).mean()) / 2 < 0.22


@pytest.mark.parametrize(
    ("method", "dtype", "rtol"), [("auto", "float64", 1e-9), ("uniform", "float64", 1e-9), ("auto", "float32", 1e-4)]
)
def test_the_second_pair_of_four_starts_with_components_in_reverse(method: str, dtype: str, rtol: float) -> None:
    target = make(Mixed, dtype)
    assert component_axes(target) == {"mean": (1,), "scales": (0,), "weights": (0,)}
    assert num_together(method, target) == 4
    keys = jax.random.split(jax.random.key(0), 2)[np.array([0, 0, 0, 0, 1, 1, 1, 1])]
    numbers = jnp.arange(8, dtype=jnp.uint32)
    starts = place_starts(method, target, keys, np.zeros(8, np.uint32), 1.0, None, numbers)
    found = [latents_of(target, starts, chain) for chain in range(8)]
    for one, other in ((0, 2), (1, 3), (4, 6), (5, 7)):
        for name in ("weights", "mean"):
            np.testing.assert_allclose(found[other][name], found[one][name][..., ::-1], rtol=rtol)
        # Ordered ones have no reverse, and a latent of its own length is none of the components.
        for name in ("scales", "slope"):
            np.testing.assert_allclose(found[other][name], found[one][name], rtol=rtol)
    assert np.abs(found[0]["weights"] - found[1]["weights"]).max() > 0.01


def test_a_model_may_start_from_the_data() -> None:
    target = make(FromData)
    blocks = [{"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 6.0])}]
    points = find_points("experiment 'mine'", InitialSettings(method="model"), target, lambda: iter(blocks))
    found = latents_of(target, points, 0)
    np.testing.assert_allclose([*found["mean"], found["noise"]], [3, 3, np.std([1, 2, 3, 6])], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("start.json", '{"mean": [1, 2]}', "has no latent 'noise'\n  remedy: add it, with shape ()"),
        ("start.json", '{"mean": [1, 2, 3], "noise": 1}', "latent 'mean' has shape (3,)\n  remedy: give it shape (2,)"),
        ("start.json", '{"means": [1, 2], "noise": 1}', "'means' is no latent of the model\n  remedy: did you mean 'mean'"),
        ("start.json", '{"mean": [1, 2], "noise": -1}', "latent 'noise' is outside of its support\n  remedy: "),
        ("start.json", '{"mean": [1, NaN], "noise": 1}', "latent 'mean' is not finite\n  remedy: "),
        ("start.json", '{"mean": [[1, 2], [1, 2]], "noise": [1, 1, 1]}', "unequal numbers of points: mean 2, noise 3\n  remedy: "),
        ("start.json", '{"mean": [1, 2', "expected latent -> numbers: Expecting"),
        ("start.json", "[1, 2]", "expected latent -> numbers: "),
        ("start.json", '{"mean": "one"}', "expected latent -> numbers: "),
        ("start.npz", "hello", "expected latent -> numbers: "),
        ("start.csv", "mean,noise", "the ending is neither .json nor .npz\n  remedy: write latents as JSON"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named_with_its_latent(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        points_of(tmp_path / name)
    assert f"{KEY}{tmp_path / name}" in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["start.json", "start.npz"])
def test_a_file_is_not_read_beyond_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(start_points, "MOST_BYTES", 1000)
    file = tmp_path / name
    if name == "start.json":
        file.write_text(json.dumps({"mean": [0.5] * 1000}))
    else:
        np.savez_compressed(file, mean=np.zeros(1000))
    with pytest.raises(ConfigError, match="more than 1,000") as caught:
        points_of(file)
    assert caught.value.remedy == "write fewer points"
