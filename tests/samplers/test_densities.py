"""Log densities and gradients that kernels see, against formulas written with NumPy and SciPy.

In unconstrained space, over two devices with padded tiles of rows. The Jacobian is that of a numerical derivative of the
map to latents, and gradients are compared with differences of the formulas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.config.registry import list_components
from bayesmesh.data.base import FieldSpec
from bayesmesh.kernels.base import Position
from cases import Case, make_case
from levels import groups_case

Arrays = Mapping[str, np.ndarray]
Terms = tuple[float, float]
"""Log prior and log likelihood."""

POINTS, DIRECTIONS = 4, 3


def normal(values: Any, mean: Any = 0.0, sd: Any = 1.0) -> float:
    return float(stats.norm(mean, sd).logpdf(values).sum())


def gaussian(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    mean = latents["mean"]
    return normal(mean, 0, case.options.prior_scale), normal(rows["x"], mean, case.spec.constants["noise_scale"])


def softmax_regression(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    logits = rows["features"] / case.spec.constants["feature_scale"] @ latents["weights"] + latents["biases"]
    chosen = np.take_along_axis(special.log_softmax(logits, axis=1), rows["label"].astype(int)[:, None], axis=1)
    return sum(normal(v, 0, case.options.prior_scale) for v in latents.values()), float(chosen.sum())


def matrix_factorization(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    logits = latents["user_embeddings"] @ latents["film_embeddings"].T
    logits = logits + latents["user_biases"][:, None] + latents["film_biases"]
    sign = np.where(rows["watched"] > 0, 1, -1)
    prior = sum(normal(v, 0, case.options.prior_scale) for v in latents.values())
    return prior, float(special.log_expit(sign * logits).sum())


def rating_factorization(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """Normal ratings; `bias_scale` and the like are in standard deviations of the ratings."""
    own, centre, sd = case.options, case.spec.constants["rating_mean"], case.spec.constants["rating_sd"]
    user, film = case.spec.entries_of(np.arange(case.spec.num_rows)), rows["film"].astype(int)
    products = np.einsum("rk,rk->r", latents["user_embeddings"][user], latents["film_embeddings"][film])
    mean = latents["mean"] + latents["user_biases"][user] + latents["film_biases"][film] + products
    prior = normal(latents["mean"], centre, sd) + float(
        stats.halfnorm(0, own.noise_scale * sd).logpdf(latents["sigma"])
    )
    for side in ("user", "film"):
        prior += normal(latents[f"{side}_biases"], 0, own.bias_scale * sd)
        prior += normal(latents[f"{side}_embeddings"], 0, np.sqrt(own.factor_scale * sd / np.sqrt(own.width)))
    return prior, normal(rows["rating"], mean, latents["sigma"])


def hidden_markov(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """The forward pass in logs (Rabiner 1989)."""
    states = len(latents["initial"])
    noise = float(latents["noise"])
    flat = np.ones(states)
    prior = normal(latents["signal"], 0, case.options.signal_scale) + stats.halfnorm(
        0, case.options.noise_scale
    ).logpdf(noise)
    for simplex in (latents["initial"], *latents["transition"]):
        prior += stats.dirichlet(flat).logpdf(simplex)
    emission = stats.norm((1 + np.arange(states)) * latents["signal"], noise).logpdf(rows["emissions"][..., None])
    forward = np.log(latents["initial"]) + emission[:, 0]
    for t in range(1, emission.shape[1]):
        forward = special.logsumexp(forward[:, :, None] + np.log(latents["transition"]), axis=1) + emission[:, t]
    return float(prior), float(special.logsumexp(forward, axis=1).sum())


def log_density(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """The autoregression of tests/support/functions.py."""
    mean, slope, noise = (float(latents[name]) for name in ("mean", "slope", "noise"))
    y = rows["emissions"]
    before = np.concatenate([np.full((len(y), 1), mean), y[:, :-1]], axis=1)
    prior = normal(mean, 0, 2) + normal(slope, 0, 0.5) + float(stats.halfnorm(0, 1.5).logpdf(noise))
    return prior, normal(y, mean + slope * (before - mean), noise)


def glm(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """The regression of tests/support/cases.py, on columns as it has prepared them."""
    z, facts = {k: np.asarray(v) for k, v in latents.items()}, case.spec.constants
    sd = np.array([facts[f"sd_of_column_{i}"] for i in range(len(z["coefficients"]))])
    effects = z["effects_site"]
    site = rows["group_0"]
    eta = z["intercept"] + rows["design"] @ (z["coefficients"] * sd)
    eta = eta + effects[site, 0] + effects[site, 1] * rows["effects_0"][:, 0]
    unit = facts["outcome_scale"]
    prior = normal(z["intercept"], facts["outcome_mean"], 2.5 * unit) + normal(z["coefficients"], 0, 2.5 * unit / sd)
    prior += normal(effects, 0, z["sd_site"]) + float(stats.expon(0, unit).logpdf(z["sigma"]))
    prior += float(stats.expon(0, unit / np.array([1, facts["size_of_effect_0"]])).logpdf(z["sd_site"]).sum())
    return prior, normal(rows["outcome"], eta, z["sigma"])


def neural_network(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """One hidden layer."""
    inputs = rows["features"] / case.spec.constants["feature_scale"]
    hidden = inputs @ latents["weights_0"] + latents["biases_0"]
    logits = hidden * special.expit(hidden) @ latents["weights_1"] + latents["biases_1"]
    chosen = np.take_along_axis(special.log_softmax(logits, axis=1), rows["label"].astype(int)[:, None], axis=1)
    prior = normal(latents["biases_0"]) + normal(latents["biases_1"])
    for name in ("weights_0", "weights_1"):
        prior += normal(latents[name], 0, 1 / np.sqrt(len(latents[name])))
    return prior, float(chosen.sum())


def pymc(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """The level of tests/support/pymc_functions.py."""
    noise = float(latents["noise"])
    prior = normal(latents["mean"], 0, 2) + float(stats.halfnorm(0, 1.5).logpdf(noise))
    return prior, normal(rows["emissions"], latents["mean"], noise)


def groups(case: Case, latents: Arrays, rows: Arrays) -> Terms:
    """Of tests/support/levels.py: latents that follow groups of rows, some of them positive."""
    group = case.spec.entries_of(np.arange(case.spec.num_rows))
    prior = normal(latents["centre"]) + normal(latents["levels"])
    prior += float(stats.lognorm(0.25).logpdf(latents["scales"]).sum())
    return prior, normal(rows["x"], latents["centre"] + latents["levels"][group], latents["scales"].T[group])


FORMULAS: dict[str, Callable[[Case, Arrays, Arrays], Terms]] = {
    f.__name__: f
    for f in (
        gaussian,
        softmax_regression,
        matrix_factorization,
        rating_factorization,
        hidden_markov,
        log_density,
        glm,
        neural_network,
        pymc,
        groups,
    )
}
SIMPLICES = ("initial", "transition")
"""Latents of which the last number on the last axis follows from the others."""

COLUMNS = slice(18, 30)
"""Of a wide field, such as the pixels of an image: a determinant takes the cube of their number."""

OPTIONS: dict[str, dict[str, Any]] = {"matrix_factorization": {"width": 2}, "rating_factorization": {"width": 2}}


@dataclasses.dataclass
class Setting:
    """A model over two devices with padded tiles, its formula, and points in unconstrained space."""

    case: Case
    target: Any

    def __post_init__(self) -> None:
        both = self._draw(POINTS + DIRECTIONS)
        self.points, self.directions = (at(both, s) for s in (slice(POINTS), slice(POINTS, None)))
        data = self.target.lay_out(self.case.rows)
        self.found = jax.device_get(jax.jit(self.target.bind(data).log_density)(self.points))
        self.latents, self.jacobian = jax.jit(self.target.constrain), jax.jit(self._jacobian)

    def _draw(self, count: int) -> Position:
        """Normal numbers, 0 in the padding."""
        generator = np.random.default_rng(4)
        shapes = self.target.position.position_shapes
        mask = [1.0 if m is None else np.asarray(m) for m in self.target.position.mask]
        drawn = jax.tree.map(lambda s: 0.7 * generator.standard_normal((count, *s.shape)), shapes)
        return Position(*(None if x is None else x * m for x, m in zip(drawn, mask, strict=True)))

    def _jacobian(self, position: Position) -> jax.Array:
        """The log determinant of the map from unconstrained coordinates to latents that are free."""
        z = self.target.position.unpack(position, jnp.dtype("float64"))
        names = sorted(z)

        def free(z: dict[str, jax.Array]) -> jax.Array:
            latents = self.target.bijector.forward(z)
            return jnp.concatenate([(latents[k][..., :-1] if k in SIMPLICES else latents[k]).ravel() for k in names])

        matrix = jax.jacfwd(free)(z)
        return jnp.linalg.slogdet(jnp.concatenate([matrix[k].reshape(matrix[k].shape[0], -1) for k in names], axis=1))[
            1
        ]

    def log_density(self, position: Position) -> float:
        """The formula at one point."""
        latents = {k: np.asarray(v) for k, v in self.latents(position).items()}
        terms = FORMULAS[self.case.name](self.case, latents, self.case.rows)
        return sum(terms) + float(self.jacobian(position))


def narrowed(case: Case) -> Case:
    """The case with few columns of every wide field."""
    rows = {k: v[:, COLUMNS] if v.ndim > 1 and v.shape[1] >= COLUMNS.stop else v for k, v in case.rows.items()}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    return dataclasses.replace(case, rows=rows, spec=dataclasses.replace(case.spec, fields=fields))


@pytest.fixture(scope="module", params=sorted(FORMULAS))
def setting(request: pytest.FixtureRequest, make_target) -> Setting:
    name = request.param
    case = groups_case(make_case) if name == "groups" else narrowed(make_case(name, **OPTIONS.get(name, {})))
    return Setting(case, make_target(case, num_devices=2, row_tile=5))


def at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def test_the_log_density_is_the_formula_s(setting: Setting, record) -> None:
    assert setting.target.layout.is_padded
    total = setting.found.log_prior + setting.found.log_likelihood
    expected = np.array([setting.log_density(at(setting.points, i)) for i in range(POINTS)])
    # TFP measures volume on a simplex by the area of the simplex: a constant.
    has_simplex = setting.latents(at(setting.points, 0)).keys() & set(SIMPLICES)
    difference = total - expected - (total - expected)[0] * bool(has_simplex)
    error = float(np.abs(difference / expected).max())
    record(f"relative error {error:.1e}", "1e-10")
    assert error < 1e-10


def test_the_gradient_is_the_formula_s(setting: Setting, record) -> None:
    """Along random directions, by central differences of the formula of fourth order."""
    size, point = 1e-3, at(setting.points, 0)
    errors = []
    for i in range(DIRECTIONS):
        direction = at(setting.directions, i)

        def shifted(t: float, direction: Position = direction) -> float:
            return setting.log_density(
                Position(*(q if q is None else q + t * v for q, v in zip(point, direction, strict=True)))
            )

        slope = (8 * (shifted(size) - shifted(-size)) - (shifted(2 * size) - shifted(-2 * size))) / (12 * size)
        pairs = zip(jax.tree.leaves(at(setting.found.gradient, 0)), jax.tree.leaves(direction), strict=True)
        errors.append(abs(sum(float((g * v).sum()) for g, v in pairs) / slope - 1))
    record(f"relative error {max(errors):.1e}", "1e-6")
    assert max(errors) < 1e-6


def test_every_model_has_a_formula() -> None:
    # The models of another library are held to its own log density, in tests/unit/models/numpyro.
    assert set(list_components("model")) <= {*FORMULAS, "numpyro"}, "write the formula of a new model here"
