"""The benchmark of time to convergence: its targets, what counts, and the ratios."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.loading import load_experiment
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import make_job
from bayesmesh_reproduction.benchmarks.convergence import list_ratios, other_samplers, samplers
from bayesmesh_reproduction.benchmarks.convergence.our_samplers import Ours
from bayesmesh_reproduction.benchmarks.convergence.posterior import (
    FlatDensity,
    Known,
    Posterior,
    quantity_names,
)
from bayesmesh_reproduction.benchmarks.convergence.published import NUM_CELLS
from bayesmesh_reproduction.benchmarks.convergence.pymc_models import pymc_model
from bayesmesh_reproduction.benchmarks.convergence.reference import importance_moments
from bayesmesh_reproduction.benchmarks.convergence.runs import Round, assess, measure
from bayesmesh_reproduction.benchmarks.convergence.targets import TARGETS
from bayesmesh_reproduction.benchmarks.harness import Measurement, Options

SMALL = [name for name, t in TARGETS.items() if name not in ("german credit", "digits") and not t.experiment]
ONE_OF_EACH = ["eight schools", "funnel", "ten modes", "hidden Markov", *(n for n in SMALL if "100x3" in n)]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_others_have_the_log_density_of_our_programs(name: str) -> None:
    """Both differ by the same constant at all points, and not at all in gradients."""
    posterior = Posterior(name, "float64")
    flat, spec = FlatDensity(posterior), posterior.spec
    target = Target(posterior.model(), spec, lay_out_rows(spec.num_rows, 1, spec.num_rows))
    bound = target.bind({k: jnp.asarray(v) for k, v in target.lay_out(posterior.rows).items()})
    points = 0.5 * np.random.default_rng(0).standard_normal((3, flat.size))
    # A position has the coordinates in the order of the prior's latents, the vector in that of their names.

    @jax.jit
    def of_both(points):
        parts = jax.vmap(flat._restore)(points)
        position = jax.vmap(target.position.pack)({k: parts[k] for k in target.position.shapes})
        return bound.log_density(position), jax.vmap(jax.value_and_grad(flat.log_density))(points)

    found, (values, gradients) = of_both(jnp.asarray(points))
    differences = np.asarray(found.log_prior + found.log_likelihood - values)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)
    ours = jax.vmap(lambda q: jax.flatten_util.ravel_pytree(target.position.unpack(q, jnp.dtype("float64")))[0])
    np.testing.assert_allclose(ours(found.gradient), gradients, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["eight schools", "funnel", "ill-conditioned", *(n for n in SMALL if "100x3" in n)])
def test_nutpie_has_the_same_log_density(name: str) -> None:
    posterior = Posterior(name, "float64")
    model, prior = pymc_model(name, posterior.rows), posterior.model().prior(posterior.spec)
    assert model is not None
    # PyTensor's plainest compiler, which does not stabilise logarithms: so the points are near 0.
    value = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    rows = {k: jnp.asarray(v) for k, v in posterior.rows.items()}
    differences = []
    for seed in range(3):
        latents = {k: 0.2 * v for k, v in prior.sample(seed=jax.random.key(seed)).items()}
        ours = prior.log_prob(latents) + jnp.sum(posterior.model().log_likelihood(latents, rows))
        # PyMC takes scales by their logs.
        point = {f"{k}_log__" if k in ("spread", "noise") else k: np.asarray(v) for k, v in latents.items()}
        differences.append(float(ours) - float(value({k: np.log(v) if "_log" in k else v for k, v in point.items()})))
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9, atol=1e-7)


def test_all_targets_have_known_moments_of_named_quantities() -> None:
    for name in SMALL:
        posterior = Posterior(name, "float64")
        prior = posterior.model().prior(posterior.spec)
        shapes = jax.eval_shape(lambda key, prior=prior: dict(prior.sample(seed=key)), jax.random.key(0))
        names = quantity_names({k: v.shape for k, v in shapes.items()})
        known = posterior.known(names)
        assert len(known.index) >= 1, name
        assert (known.sd > 0).all(), name
        assert (known.error < 0.02 * known.sd).all(), name


@pytest.mark.parametrize("name", [name for name, t in TARGETS.items() if t.experiment])
def test_an_experiment_is_compared_with_its_own_settings(name: str) -> None:
    of = TARGETS[name].experiment
    experiment = load_experiment(Path("config/experiments", f"{of}.yaml"))
    ours, *others = samplers.list_contenders(Options(seconds_limit=9.0), "python", of)
    assert (ours.name, ours.options["experiment"]) == (f"ours, as in {of}.yaml", f"config/experiments/{of}.yaml")
    assert len(others) == 7
    assert {each.options["chains"] for each in (ours, *others)} == {experiment.sampling.chains}
    assert {each.options["budget"] for each in (ours, *others)} == {500}
    # The other samplers have the model with its defaults.
    assert experiment.model.name == TARGETS[name].model
    options = component_of(make_job("sample", "x", experiment, "results"), "model")[1]
    assert options_class("model", experiment.model.name)() == options


@pytest.mark.parametrize(("name", "shapes"), [("MNIST", {(60000, 784), (60000,)}), ("MovieLens", {(6040, 3706)})])
def test_the_published_data_are_read_as_their_sources_do(
    name: str, shapes: set[tuple[int, ...]], tmp_path: Path
) -> None:
    rows, constants = TARGETS[name].read()
    source = load_component("source", TARGETS[name].experiment)
    made = source(options_class("source", TARGETS[name].experiment)())
    made.fetch(tmp_path)
    dataset = made.read(tmp_path)
    assert {values.shape for values in rows.values()} == shapes
    assert constants == dataset.constants
    assert rows.keys() == dataset.rows.keys()
    assert all((values == dataset.rows[name]).all() for name, values in rows.items())


def test_cells_of_the_watch_matrix_are_assessed_in_place_of_embeddings() -> None:
    rng, of = np.random.default_rng(0), TARGETS["MovieLens"].quantities
    shapes = {"user_embeddings": (60, 3), "film_embeddings": (40, 3), "user_biases": (60,), "film_biases": (40,)}
    latents = {k: jnp.asarray(rng.standard_normal(shape)) for k, shape in shapes.items()}
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    rotated = {k: v @ rotation if "embeddings" in k else v for k, v in latents.items()}
    assert of is not None
    found, again = of(latents), of(rotated)
    assert found["logit"].shape == (NUM_CELLS,)
    for name in found:
        np.testing.assert_allclose(found[name], again[name], atol=1e-6)


def test_the_reference_is_found_without_chains() -> None:
    posterior = Posterior("four normals", "float64")
    density = FlatDensity(posterior)
    found, known = importance_moments(density, num_draws=2**14), posterior.known(density.names)
    assert abs(found.mean[0] - known.mean[0]) < 5 * found.error[0] < 0.3
    np.testing.assert_allclose(found.sd, known.sd, rtol=0.05)


class Draws:
    """Normal draws about `mean`, of which chain 0 is off by `apart`."""

    def __init__(self, mean: float = 0.0, apart: float = 0.0) -> None:
        self.mean, self.apart, self.made = mean, apart, 0

    def warm_up(self, seed: int) -> float:
        self.rng = np.random.default_rng(seed)
        return 10.0

    def draw(self, until: int) -> Round:
        count, self.made = until - self.made, until
        draws = self.mean + self.rng.standard_normal((4, count, 2))
        draws[0] += self.apart
        return Round(draws, 4.0 * count)


KNOWN = Known(np.array([1]), np.zeros(1), np.ones(1), np.zeros(1))


def test_a_right_sampler_stops_at_its_budget() -> None:
    facts = measure(Draws(), 1, KNOWN, 4, 100.0, 250)
    assert (facts["result"], facts["draws"]) == ("right", 250)
    assert facts["gradients"] == 10 + 4 * 250
    assert facts["converged_draws"] in (125, 250)
    assert facts["converged_gradients"] == 10 + 4 * facts["converged_draws"]
    assert facts["ess_per_gradient"] == pytest.approx(facts["min_ess_bulk"] / facts["gradients"])


def test_what_is_wrong_or_has_not_converged_is_marked() -> None:
    wrong = measure(Draws(mean=0.3), 1, KNOWN, 4, 100.0, 500)
    assert wrong["result"] == "wrong"
    assert wrong["error"] > 1
    apart = measure(Draws(apart=3.0), 1, KNOWN, 4, 0.0, 500)
    assert (apart["result"], apart["draws"]) == ("not converged", 125)
    assert "converged_s" not in apart
    missing = measure(Draws(), 1, KNOWN._replace(index=np.zeros(0, int)), 4, 100.0, 500)
    assert missing["result"] == "no reference"


def test_a_standard_deviation_that_is_too_small_is_wrong() -> None:
    draws = np.random.default_rng(0).standard_normal((4, 1000, 2))
    assert assess(draws, KNOWN).error < 1 < assess(0.7 * draws, KNOWN).error


def test_our_programs_take_part() -> None:
    """At a tiny size, on a target whose moments are exact."""
    ours = Ours("nuts", 4, 0.0, 125)
    facts = ours.prepare({"target": "four normals"})
    assert facts["compile_s"] > 0
    found = ours.run(0)
    assert (found["chains"], found["draws"]) == (4, 125)
    assert found["gradients"] >= 4 * (125 + facts["warmup"])
    assert found["error"] < 1


class Walk(other_samplers.Other):
    """A random walk: the least that makes another sampler."""

    def warm(self, keys: jax.Array) -> tuple[Any, jax.Array]:
        return jax.vmap(self.start)(keys), jnp.zeros(len(keys), int)

    def step(self, carry: Any, keys: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        def chain(at: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            proposal = at + 3 * jax.random.normal(key, at.shape, at.dtype)
            ratio = self.density.log_density(proposal) - self.density.log_density(at)
            at = jnp.where(jnp.log(jax.random.uniform(jax.random.fold_in(key, 1))) < ratio, proposal, at)
            return at, at

        at, position = jax.vmap(chain)(carry, keys)
        return at, position, jnp.ones(len(keys), int)


def test_others_take_part_on_the_plain_log_density(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    walk = Walk(4, 0, 1e9, 2000)
    walk.dtype = "float64"
    walk.prepare({"target": "four normals"})
    found = walk.run(0)
    assert found["result"] == "right"
    assert found["gradients"] == 4 * found["draws"]


def _measured(target: str, contender: str, rate: float, result: str = "right") -> Measurement:
    facts = {
        "result": result, "ess_per_s": rate, "ess_per_gradient": rate, "min_ess_bulk": 500.0, "total_s": 500 / rate,
        "compile_s": 0.0,
    }  # fmt: skip
    return Measurement({"target": target}, contender, seconds=[1.0], facts=facts)


def test_ratios_are_of_the_best_that_count() -> None:
    measured = [
        _measured("a", "ours", 4.0), _measured("a", "ours: NUTS", 6.0), _measured("a", "TFP NUTS", 3.0),
        _measured("a", "NumPyro NUTS", 100.0, "wrong"),
        _measured("b", "ours", 1.0), _measured("b", "TFP NUTS", 4.0),
        _measured("c", "ours", 1.0, "not converged"), _measured("c", "TFP NUTS", 4.0, "not converged"),
        _measured("d", "ours", 1.0, "wrong"), _measured("d", "TFP NUTS", 4.0),
    ]  # fmt: skip
    ratios = {(r.case, r.contender): r for r in list_ratios(measured, is_gated=True)}
    best = ratios["a: ESS per second", "ours: NUTS"]
    assert (best.ratio, best.against, best.verdict) == (2.0, "TFP NUTS", "holds")
    assert ratios["a: ESS per second", "ours"].ratio == pytest.approx(4 / 3)
    assert ratios["b: ESS per second", "ours"].verdict == "failed"
    (nobody,) = [r for (case, _), r in ratios.items() if case == "c: ESS per second"]
    assert (math.isnan(nobody.ratio), nobody.verdict) == (True, "")
    (lost,) = [r for (case, _), r in ratios.items() if case == "d: ESS per second"]
    assert (lost.ratio, lost.verdict) == (0.0, "failed")
    (share,) = [r for (case, _), r in ratios.items() if case.startswith("all targets") and case.endswith("per second")]
    assert (share.ratio, share.rounds, share.verdict) == (pytest.approx(1 / 3), 3, "failed")


def test_names_of_classes_exist() -> None:
    assert all(issubclass(getattr(other_samplers, cls), other_samplers.Other) for cls, _ in samplers.OTHERS.values())
    assert all(samplers.is_ours(name) for name in samplers.VARIANTS)
    assert not any(samplers.is_ours(name) for name in samplers.OTHERS)
