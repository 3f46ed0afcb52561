"""Effects that are integrated out: the density of the other latents in closed form, and draws of the effects given these."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bayesmesh.config.registry import options_class
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.model import Glm
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows
from cases import condensed, trees

NUM_ROWS = 300

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "intercepts": ("growth ~ age + (1 | site)", {}),
    "slopes": ("growth ~ age + species + (1 + mass + age | site)", {"weights": "plots"}),
    "uncorrelated": ("growth ~ age + (1 + mass || site)", {"offset": "mass", "local_group": "site"}),
    "slopes alone": ("growth ~ 0 + age + (0 + mass + age | site)", {}),
    "no columns": ("growth ~ 0 + (1 | site)", {}),
    "nested": ("growth ~ age + (1 + mass | site) + (1 + age | plot)", {"integrated_group": "plot"}),
    "two rows a level": ("growth ~ age + mass + (1 + age | pair)", {}),
}


def make(case: str, shift: float = 0.0) -> tuple[Any, ...]:
    """Return options, prepared rows and condensed rows; a level without rows, levels within levels, and pairs of rows."""
    formula, options = CASES[case]
    spec, table = trees(NUM_ROWS)
    table["site"] = np.where(table["site"] == 2, 1, table["site"])
    table["plot"] = (table["site"] * 4 + np.arange(NUM_ROWS) % 4).astype(np.int32)
    table["pair"] = (np.arange(NUM_ROWS) // 2).astype(np.int32)
    table["growth"] = table["growth"] + shift
    about = {"plot": 20, "pair": NUM_ROWS // 2}
    fields = {**spec.fields, **dict.fromkeys(about, spec.fields["site"])}
    variable = type(spec.variables["site"])
    variables = {name: variable("category", levels=tuple(map(str, range(n)))) for name, n in about.items()}
    spec = type(spec)(NUM_ROWS, fields, {}, "float64", variables={**spec.variables, **variables})
    own = options_class("model", "glm")(formula=formula, family="normal", **options)
    return own, *condensed(own, spec, table)


def by_hand(own: Any, prepared: Any, rows: Any, latents: Any, group: Any) -> tuple[float, np.ndarray]:
    """Return the log density of the outcomes without the effects of a group, and the mean of these effects given them."""
    model = Glm(own, prepared)
    zero = {**latents, group.effects: jnp.zeros((group.num_levels, group.num_effects))}
    local = {name: zero[name][prepared.entries_of(np.arange(prepared.num_rows))] for name in model.local_latents}
    mean = np.asarray(model.linear_predictor({**zero, **local}, {k: jnp.asarray(v) for k, v in rows.items()}))
    codes = rows.get(f"group_{group.number}", prepared.entries_of(np.arange(prepared.num_rows)))
    design = np.zeros((prepared.num_rows, group.num_levels, group.num_effects))
    design[np.arange(prepared.num_rows), codes] = group.columns_of_effects(rows)
    design = design.reshape(prepared.num_rows, -1)
    scale = np.asarray(group.scale(latents))
    of_effects = np.kron(np.eye(group.num_levels), scale @ scale.T)
    weights, variance = np.asarray(rows.get("weights", np.ones(prepared.num_rows))), float(latents["sigma"]) ** 2
    away, noise = np.asarray(rows["outcome"]) - mean, np.diag(variance / weights)
    covariance = noise + design @ of_effects @ design.T
    # A weight is a power of the density of its row.
    powers = 0.5 * np.sum(np.log(2 * np.pi * variance / weights) - weights * np.log(2 * np.pi * variance))
    total = multivariate_normal(np.zeros(len(away)), covariance).logpdf(away) + powers
    return total, (of_effects @ design.T @ np.linalg.solve(covariance, away)).reshape(group.num_levels, -1)


@pytest.mark.parametrize("case", CASES)
def test_density_and_effects_have_their_closed_form(case: str) -> None:
    own, prepared, rows, few, read = make(case)
    model, plain = Glm(own, few), Glm(own, prepared)
    (name,) = model.integrated
    group = next(group for group in plain.plan.main.groups if group.effects == name)
    assert few.num_rows == group.num_levels
    assert not plain.integrated
    arrays = {k: jnp.asarray(v) for k, v in read.items()}
    log_likelihood, draw = jax.jit(model.log_likelihood), jax.jit(model.draw_integrated)
    for seed in range(2):
        latents = plain.prior(prepared).sample(seed=jax.random.key(seed))
        others = {k: v for k, v in latents.items() if k != name}
        assert set(others) == set(model.prior(few).sample(seed=jax.random.key(seed)))
        total, mean = by_hand(own, prepared, rows, latents, group)
        assert log_likelihood(others, arrays).sum() == pytest.approx(total, rel=1e-10)
        zeros = {name: jnp.zeros((few.num_rows, group.num_effects))}
        found = draw(others, arrays, zeros)[name]
        np.testing.assert_allclose(found, mean, rtol=1e-7, atol=1e-9 * np.abs(mean).max())


@pytest.mark.parametrize("case", CASES)
def test_density_of_all_latents_is_that_of_the_others_times_that_of_drawn_effects(case: str) -> None:
    own, prepared, rows, few, read = make(case)
    model, plain = Glm(own, few), Glm(own, prepared)
    (name,) = model.integrated
    latents = plain.prior(prepared).sample(seed=jax.random.key(8))
    others = {k: v for k, v in latents.items() if k != name}
    arrays, raw = ({k: jnp.asarray(v) for k, v in each.items()} for each in (read, rows))
    entries = prepared.entries_of(np.arange(prepared.num_rows))
    shape = (few.num_rows, *model.integrated[name])

    def drawn(normals: jax.Array) -> jax.Array:
        return model.draw_integrated(others, arrays, {name: normals})[name]

    @jax.jit
    def together(normals: jax.Array) -> jax.Array:
        effects = drawn(normals)
        every = {**others, name: effects}
        aligned = {k: every[k][entries] for k in plain.local_latents}
        return plain.prior(prepared).log_prob(every) + plain.log_likelihood({**every, **aligned}, raw).sum()

    normals = jax.random.normal(jax.random.key(9), shape)
    slopes = jax.jit(jax.jacobian(drawn))(jnp.zeros(shape)).reshape(normals.size, normals.size)
    of_normals = -0.5 * jnp.sum(jnp.square(normals)) - 0.5 * normals.size * jnp.log(2 * jnp.pi)
    of_others = jax.jit(lambda x: model.prior(few).log_prob(x) + model.log_likelihood(x, arrays).sum())(others)
    expected = of_others + of_normals - jnp.linalg.slogdet(slopes)[1]
    np.testing.assert_allclose(together(normals), expected, rtol=1e-9)


@pytest.mark.parametrize("case", ["slopes", "nested"])
def test_neither_devices_nor_tiles_change_density_and_draws(case: str) -> None:
    own, _, _, few, read = make(case)
    model, found = Glm(own, few), []
    for layout in (
        lay_out_rows(few.num_rows, 1, few.num_rows),
        lay_out_rows(few.num_rows, 3, 1),
        lay_out_rows(few.num_rows, 2, 2),
    ):
        target = Target(model, few, layout)
        data = {k: jnp.asarray(v) for k, v in target.lay_out(read).items()}
        position = jax.tree.map(lambda x: x[None], target.sample_prior(jax.random.key(1)))
        density = target.bind(data).log_density(position)
        drawn = target.draw_integrated(jax.random.key(2), jax.tree.map(lambda x: x[0], position), data)
        found.append((density, {k: v[: few.num_rows] for k, v in drawn.items()}))
    for other in found[1:]:
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-12 * np.abs(y).max()), other, found[0]
        )


def test_digits_remain_where_outcomes_are_far_from_zero() -> None:
    own, _, _, few, read = make("no columns")
    far_own, _, _, far, far_read = make("no columns", shift=1e6)
    latents = {"sigma": jnp.asarray(0.4), "sd_site": jnp.asarray([1e6])}
    total = functools.partial(
        lambda o, s, r: Glm(o, s).log_likelihood(latents, {k: jnp.asarray(v) for k, v in r.items()}).sum()
    )
    near, found = total(own, few, read), total(far_own, far, far_read)
    # The prior of effects is nearly flat over both: only the squares of the effects differ.
    assert float(near - found) == pytest.approx(0.5 * 4, rel=0.01)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("growth ~ age + (1 | site) + (1 | species)", {"integrated_group": "site"}),
        ("growth ~ age + (1 | site)", {"integrated_group": "site", "family": "student_t"}),
        ("growth ~ age + (1 | site)", {"integrated_group": "plot"}),
    ],
)
def test_a_group_that_cannot_be_integrated_out_is_rejected(formula: str, options: dict[str, Any]) -> None:
    spec, table = trees(NUM_ROWS)
    own = options_class("model", "glm")(**{"family": "normal", "formula": formula, **options})
    with pytest.raises(ConfigError, match="integrated_group"):
        condensed(own, spec, table)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("growth ~ age + (1 | site)", {"integrated_group": "none"}),
        ("growth ~ age + (1 | site)", {"centred": True}),
        ("growth ~ age + (1 | site) + (1 | species)", {}),
        ("growth ~ age + (1 | site) + (1 | species)", {"local_group": "species"}),
    ],
)
def test_effects_are_sampled_where_they_are_not_integrated_out(formula: str, options: dict[str, Any]) -> None:
    spec, table = trees(NUM_ROWS)
    own = options_class("model", "glm")(family="normal", formula=formula, **options)
    *_, few, _ = condensed(own, spec, table)
    assert not Glm(own, few).integrated


@pytest.mark.parametrize(
    ("outcome", "group", "options", "is_told"),
    [
        ("growth", "1 | site", {}, True),
        ("growth", "1 + age || site", {}, True),
        ("growth", "1 + age | site", {}, False),
        ("growth", "1 | site", {"centred": True}, False),
        ("leaves", "1 | site", {"family": "poisson"}, False),
    ],
)
def test_the_page_names_the_kernel_for_crossed_groups_of_many_levels(
    outcome: str, group: str, options: dict[str, Any], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayesmesh.models.glm.description.MANY_LEVELS", 8)
    spec, table = trees(NUM_ROWS)
    formula = f"{outcome} ~ age + ({group}) + (1 | species)"
    own = options_class("model", "glm")(formula=formula, **{"family": "normal", **options})
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    facts = Glm(own, prepared).described()["facts"]
    assert ("kernel: {name: gibbs}" in facts.get("Effects of site, species", "")) == is_told  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("priors", "is_normal"),
    [
        ({"sdx": "normal(0, 1)", "sigma": "exponential(1)", "sd": "exponential(1)", "sd_site": "half_cauchy(1)"}, True),
        ({"sdx": "cauchy(0, 1)"}, False),
        ({"coefficients": "laplace(0, 1)"}, False),
        ({"intercept": "student_t(3, 0, 1)"}, False),
    ],
)
def test_effects_are_drawn_exactly_only_under_normal_priors_of_intercept_and_coefficients(
    priors: dict[str, str], is_normal: bool
) -> None:
    spec, table = trees(NUM_ROWS)
    table["sdx"] = table["mass"]
    spec = dataclasses.replace(spec, fields={**spec.fields, "sdx": spec.fields["mass"]})
    formula = "growth ~ sdx + (1 | site) + (1 | species)"
    own = options_class("model", "glm")(formula=formula, family="normal", centred=True, priors=priors)
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    assert bool(Glm(own, prepared).normal_groups) == is_normal
