"""Latents that JAX cannot draw from: flat ones, and proper ones without a sampler; and one sampler that PyTensor lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pymc
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import Interval, log_exp_m1, ordered
from scipy import stats

from bayesmesh.models.pymc.graphs import Graphs

EDGES = np.eye(4, k=1, dtype=int) + np.eye(4, k=-1, dtype=int)
"""A path of four places."""


def soft_zero(name: str) -> Any:
    found = pymc.Normal(name, 0, 1, shape=3)
    pymc.Potential("zero", -(found.sum() ** 2))
    return found


def hierarchy(name: str) -> Any:
    return pymc.Normal(name, pymc.Flat("centre"), 1.0)


def covariance(name: str) -> Any:
    """Draws of its parts have shapes that PyTensor computes."""
    return pymc.LKJCholeskyCov(name, n=2, eta=2, sd_dist=pymc.Exponential.dist(1), compute_corr=True)[0]


def make(latent: Callable[[str], Any]) -> tuple[pymc.Model, Graphs]:
    """Return a regression with a latent of some kind, and its graphs."""
    rows = {name: pt.tensor(name, dtype="float64", shape=(None,)) for name in "xy"}
    with pymc.Model() as model:
        a, sd = latent("a"), pymc.HalfNormal("sd", 1)
        pymc.Normal("y", a.sum() * rows["x"], sd, observed=rows["y"])
    return model, Graphs(model, rows, "some")


KINDS: dict[str, tuple[Callable[[str], Any], bool, tuple[int, ...]]] = {
    "normal": (lambda name: pymc.Normal(name, 0, 1), True, ()),
    "made of another": (lambda name: pymc.InverseGamma(name, 2, 1), True, ()),
    "truncated normal": (lambda name: pymc.TruncatedNormal(name, 0, 1, lower=0), True, ()),
    "flat": (lambda name: pymc.Flat(name, shape=(2, 3)), False, (2, 3)),
    "half flat": (lambda name: pymc.HalfFlat(name, shape=2), False, (2,)),
    "intrinsic": (lambda name: pymc.ICAR(name, W=EDGES, sigma=1), False, (4,)),
    "no sampler": (lambda name: pymc.SkewNormal(name, mu=0, sigma=1, alpha=2), False, ()),
    "shapes of its own": (covariance, False, (3,)),
    "below a flat one": (hierarchy, False, ()),
    "potential": (soft_zero, False, (3,)),
    "ordered": (lambda name: pymc.Normal(name, 0, 1, shape=3, transform=ordered), False, (3,)),
    "ordered and positive": (lambda name: pymc.HalfNormal(name, 1, shape=3, transform=ordered), False, (3,)),
    "in an interval": (lambda name: pymc.Normal(name, 0, 1, transform=Interval(-1, 1)), False, ()),
    "another transform": (
        lambda name: pymc.HalfNormal(name, 1, default_transform=None, transform=log_exp_m1),
        True,
        (),
    ),
    "angle": (lambda name: pymc.VonMises(name, 0, 1), False, ()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_lies_in_the_support_and_is_called_proper_if_it_follows_the_density(kind: str) -> None:
    latent, is_proper, shape = KINDS[kind]
    _, graphs = make(latent)
    draws = jax.vmap(graphs.draw_prior())(jax.random.split(jax.random.key(0), 50))
    assert graphs.has_proper_prior == is_proper
    assert draws["a"].shape == (50, *shape)
    assert np.isfinite(jax.vmap(graphs.log_prior())(draws)).all()
    assert (draws["a"].reshape(50, -1).std(axis=0) > 0.01).all(), "chains start apart"


def test_the_density_of_flat_latents_is_pymc_s() -> None:
    data = {"x": np.array([1.0, -1.0, 2.0]), "y": np.array([0.5, 0.0, 1.0])}
    _, graphs = make(KINDS["half flat"][0])
    draw = graphs.draw_prior()(jax.random.key(1))
    with pymc.Model() as own:
        a, sd = pymc.HalfFlat("a", shape=2), pymc.HalfNormal("sd", 1)
        pymc.Normal("y", a.sum() * data["x"], sd, observed=data["y"])
    point = {f"{name}_log__": np.log(draw[name]) for name in ("a", "sd")}
    expected = own.compile_logp(mode="FAST_COMPILE")(point) - sum(map(np.sum, point.values()))
    found = (
        graphs.log_prior()(draw)
        + graphs.log_likelihood()(draw, {k: jax.numpy.asarray(v) for k, v in data.items()}).sum()
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_truncated_normals_have_their_distribution() -> None:
    _, graphs = make(lambda name: pymc.TruncatedNormal(name, 1, 2, lower=0, upper=[3, np.inf], shape=2))
    draws = jax.vmap(graphs.draw_prior())(jax.random.split(jax.random.key(0), 4000))["a"]
    for column, upper in enumerate((3, np.inf)):
        expected = stats.truncnorm(-0.5, (upper - 1) / 2, 1, 2)
        assert stats.kstest(np.asarray(draws[:, column]), expected.cdf).pvalue > 1e-3


def observed(*distributions: Any) -> Graphs:
    """Return the graphs of a model whose outcomes have these distributions."""
    rows = {name: pt.tensor(name, dtype="float64", shape=(None,)) for name in "xy"}
    with pymc.Model() as model:
        slope = pymc.Normal("slope", 0, 1)
        for number, (distribution, options) in enumerate(distributions):
            distribution(f"y{number}", **options, mu=slope * rows["x"], sigma=1, observed=(1 + number) * rows["y"])
    return Graphs(model, rows, "some")


def test_outcomes_that_are_made_of_other_distributions_are_predicted() -> None:
    rows = {name: pt.tensor(name, dtype="float64", shape=(None,)) for name in "xy"}
    x, most = jax.numpy.linspace(-1.0, 1.0, 20_000), 0.3
    for name in ("censored", "mixture"):
        with pymc.Model() as model:
            slope = pymc.Normal("slope", 0, 1)
            if name == "censored":
                parts = pymc.Normal.dist(slope * rows["x"], 1)
                pymc.Censored("y", parts, lower=None, upper=most, observed=rows["y"])
            else:
                pymc.NormalMixture("y", [0.2, 0.8], mu=[-3.0, 3.0], sigma=0.5, observed=rows["y"])
        graphs = Graphs(model, rows, "some")
        assert graphs.has_predictions, name
        draw, log_prob, outcome = graphs.predict()
        given = {"slope": jax.numpy.asarray(2.0)}, {"x": x, "y": jax.numpy.full_like(x, most)}
        drawn = np.asarray(draw(jax.random.key(0), *given))
        assert drawn.shape == x.shape
        at_most = stats.norm.sf(most, 2 * np.asarray(x), 1)
        if name == "censored":
            assert drawn.max() == most
            assert (drawn == most).mean() == pytest.approx(at_most.mean(), abs=0.02)
            np.testing.assert_allclose(log_prob(*given, outcome(given[1])), np.log(at_most), rtol=1e-6)
        else:
            assert (drawn > 0).mean() == pytest.approx(0.8, abs=0.02)
