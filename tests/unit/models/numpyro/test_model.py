"""NumPyro's functions as models of the pipeline, against NumPyro's own log density."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

import numpyro_functions
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.sampling.checks.model import check_model, check_predictions
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

GENERATOR = np.random.default_rng(3)
DATA = {"x": GENERATOR.standard_normal((7, 2)), "y": GENERATOR.standard_normal(7)}
SCHOOLS = {
    "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), "sigma": np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
}  # fmt: skip
SPEC = DataSpec(7, {k: FieldSpec(v.shape[1:], "float64") for k, v in DATA.items()}, {}, "float64")
OPTIONS = options_class("model", "numpyro")


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def make(name: str, data: Mapping[str, np.ndarray] = DATA, **options: Any) -> tuple[Any, DataSpec]:
    """Return the model of a function and the description of its data, whole if it takes them so."""
    lead = (lambda v: v.shape) if options.get("whole") else (lambda v: v.shape[1:])
    fields = {k: FieldSpec(lead(v), "float64") for k, v in data.items()}
    num_rows = 1 if options.get("whole") else len(data["y"])
    spec = DataSpec(num_rows, fields, {"num_classes": 3}, "float64")
    return load_component("model", "numpyro")(OPTIONS(function=f"numpyro_functions:{name}", **options), spec), spec


def seeded(name: str) -> Any:
    return handlers.seed(getattr(numpyro_functions, name), jax.random.key(0))


@pytest.mark.parametrize(("name", "names"), [("rich", "xy"), ("without_plate", "xy")])
def test_prior_likelihood_and_jacobian_are_numpyro_s(name: str, names: str) -> None:
    """In one tile, and in tiles of three over two devices; at draws of the prior."""
    model, spec = make(name)
    given = {k: jnp.asarray(DATA[k]) for k in names}
    if name == "without_plate":
        given["num_classes"] = 3
    latents = model.prior(spec).sample(seed=jax.random.key(1))
    expected = float(log_density(seeded(name), (), given, latents)[0])
    found = model.prior(spec).log_prob(latents) + model.log_likelihood(latents, {k: given[k] for k in names}).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-12)

    bijector = model.prior(spec).experimental_default_event_space_bijector()
    z = bijector.inverse(latents)
    for latent, value in bijector.forward(z).items():
        np.testing.assert_allclose(value, latents[latent], rtol=1e-10)
    target = Target(model, spec, lay_out_rows(7, 2, 3))
    data = {k: jnp.asarray(v) for k, v in target.lay_out(DATA).items()}
    position = jax.tree.map(lambda v: v[None], target.position.pack(z))
    density = target.bind(data).log_density(position)
    energy, slope = jax.value_and_grad(lambda z: potential_energy(seeded(name), (), given, z))(z)
    np.testing.assert_allclose(density.log_prior[0] + density.log_likelihood[0], -energy, rtol=1e-10)
    there = target.position.unpack(Position(density.gradient.shared[0], None), jnp.dtype("float64"))
    for latent, value in slope.items():
        np.testing.assert_allclose(there[latent], -value, rtol=1e-8, atol=1e-10)


def test_data_without_rows_are_one_row() -> None:
    model, spec = make("schools", SCHOOLS, whole=True)
    assert type(model).reads_whole(model.options)
    latents = model.prior(spec).sample(seed=jax.random.key(1))
    rows = {k: jnp.asarray(v)[None] for k, v in SCHOOLS.items()}
    found = model.prior(spec).log_prob(latents) + model.log_likelihood(latents, rows).sum()
    expected = log_density(seeded("schools"), (), {k: v[0] for k, v in rows.items()}, latents)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert set(check_model(type(model), model.options, spec)) == {"mu", "tau", "theta"}
    assert not model.has_predictions


def test_it_predicts_its_observed_site() -> None:
    model, spec = make("without_plate")
    rows = {k: jnp.asarray(v) for k, v in DATA.items()}
    latents = model.prior(spec).sample(seed=jax.random.key(1))
    assert model.has_predictions
    assert not make("rich")[0].has_predictions, "a factor and a site are observed in the rows"
    np.testing.assert_array_equal(model.outcome(rows), DATA["y"])
    predictive = model.predict(latents, rows)
    assert predictive.batch_shape == (7,)
    mean = DATA["x"] @ latents["slope"]
    np.testing.assert_allclose(predictive.log_prob(rows["y"]), stats.norm.logpdf(DATA["y"], mean), rtol=1e-10)
    check_predictions(model, check_model(type(model), model.options, spec), spec)


def test_outcomes_outside_the_support_have_no_density() -> None:
    rows = {"y": jnp.asarray([0.5, 2.0, -0.1])}
    found = make("of_an_unknown_range")[0].log_likelihood({"end": jnp.asarray(1.5)}, rows)
    np.testing.assert_allclose(found, [-np.log(1.5), -np.inf, -np.inf])


def test_weights_and_masks_of_rows_are_named_where_rows_are_scored() -> None:
    latents = {"mean": jnp.asarray(0.3)}
    rows = {k: jnp.asarray(abs(v) + 1) for k, v in DATA.items()}
    plain = stats.norm.logpdf(rows["y"], 0.3)
    for name, problem, expected in (
        ("weighted", "weights the rows of 'y'", plain * rows["x"][:, 0]),
        ("masked", "takes rows of 'y' out", plain),
    ):
        model, spec = make(name)
        assert set(check_model(type(model), model.options, spec)) == {"mean"}
        np.testing.assert_allclose(model.log_likelihood(latents, rows), expected, rtol=1e-6)
        assert problem in model.row_problem
        assert model.has_predictions is (name == "weighted"), "outcomes of masked rows are not compared with the data"
    assert make("without_plate")[0].row_problem == ""
    assert "several sites are observed in each row ('y', 'x')" in make("two_outcomes")[0].row_problem
    assert not make("flat")[0].has_proper_prior, "draws do not follow a density that is masked or scaled"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("of_seven", "the plate 'rows' has 7 entries, whatever"),
        ("of_dimensions", "cannot be called 'chain'"),
        ("half_observed", "`obs_mask` of 'y' makes a latent for every row"),
    ],
)
def test_mistakes_are_named_with_the_line_of_the_function(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        check_model(type(make(name)[0]), make(name)[0].options, SPEC)
    assert "models/numpyro/" not in str(caught.value)


@pytest.mark.parametrize("name", ["volatility", "growth", "walk"])
def test_loops_carry_latents_and_data_in_float32(name: str) -> None:
    """JAX refuses a carry whose dtype changes, as where NumPyro draws float64 beside fields in float32."""
    data = {"t": np.linspace(0, 3, 7), "y": DATA["y"]}
    spec = DataSpec(1, {k: FieldSpec(v.shape, "float64") for k, v in data.items()}, {}, "float32")
    model = load_component("model", "numpyro")(OPTIONS(function=f"numpyro_functions:{name}", whole=True), spec)
    shapes = check_model(type(model), model.options, spec)
    latents = model.prior(spec).sample(seed=jax.random.key(1))
    assert {k: (v.shape, v.dtype) for k, v in latents.items()} == {k: (v.shape, np.float32) for k, v in shapes.items()}
    found = model.prior(spec).log_prob(latents)
    found += model.log_likelihood(latents, {k: jnp.asarray(v, "float32")[None] for k, v in data.items()}).sum()
    doubled = {k: v.astype("float64") for k, v in latents.items()}
    given = {k: jnp.asarray(v) for k, v in data.items() if name == "growth" or k == "y"}
    np.testing.assert_allclose(found, log_density(seeded(name), (), given, doubled)[0], rtol=1e-4)
    bijector = model.prior(spec).experimental_default_event_space_bijector()
    for latent, value in bijector.forward(bijector.inverse(latents)).items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, latents[latent], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("discrete", "the latent 'count' is discrete\n  remedy: sum it out"),
        ("schools", "the latent 'theta' has an entry for each row\n  remedy: .*whole: true"),
        ("blind", "no observed site has the rows on an axis\n  remedy: .*plate"),
        ("summed", "'fit' depends on the values of the rows.*\n  remedy: .*whole: true"),
        ("from_the_data", "'mean' depends on the values of the rows"),
        ("of_their_spread", "'mean' depends on the values of the rows.*\n  remedy: .*standard normal prior"),
        ("of_their_number", "'mean' depends on the number of rows, .*\n  remedy: .*whole: true"),
        ("penalised_by_their_number", "'penalty' depends on the number of rows"),
        ("on_the_sphere", "'a' has a distribution, ProjectedNormal, whose support.*\n  remedy: .*linalg.norm"),
        ("with_zeros", "'a' has a distribution, HurdleGamma, in which single values"),
        (
            "shifted",
            "'a' is transformed by AffineTransform, whose domain is Real.*Positive.*\n  remedy: .*deterministic",
        ),
        ("squared", "'a' is transformed by PowerTransform, whose domain is Positive.*Real"),
        ("in_a_part", "the plate 'rows' takes a subsample\n  remedy: leave subsample_size out"),
        ("with_a_param", "'mean' is a param\n  remedy: draw it from a prior"),
        ("of_another_table", "its argument 'z' is not a field of the data\n  remedy: .*valid: num_classes, x, y"),
    ],
)
def test_what_cannot_be_taken_is_refused(name: str, said: str) -> None:
    data = SCHOOLS if name == "schools" else DATA
    model, spec = make(name, data)
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        model.prior(spec)
