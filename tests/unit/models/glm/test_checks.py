"""Levels without training rows, as in a fold: their coefficients follow their priors alone, and nothing else changes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.model import Glm
from bayesmesh.sampling.checks.model import check_described
from cases import trees

NUM_ROWS = 90
OUTCOMES = {
    "normal": "growth", "student_t": "growth", "bernoulli": "alive", "poisson": "leaves", "gamma": "mass",
    "categorical": "stage", "ordinal": "stage",
}  # fmt: skip


def _make(formula: str, family: str, levels: tuple[str, ...], kept: Any = slice(None)) -> tuple[Glm, Any, Any, Any]:
    """Return a model, its preparation, its rows and those of the table."""
    spec, table = trees(NUM_ROWS)
    table = {name: values[kept] for name, values in table.items()}
    variables = {**spec.variables, "species": Variable("category", levels=levels)}
    spec = dataclasses.replace(spec, num_rows=len(table["age"]), variables=variables)
    own = options_class("model", "glm")(formula=formula, family=family)
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    made = Glm.prepare(own, spec, lambda: iter([table]))
    return Glm(own, prepared), made, {name: jnp.asarray(values) for name, values in rows.items()}, table


@pytest.mark.parametrize("family", OUTCOMES)
@pytest.mark.parametrize("terms", ["age + species", "0 + species", "age * species", "species + (1 | site)"])
def test_a_level_without_rows_follows_its_prior_and_leaves_the_rest(
    caplog: pytest.LogCaptureFixture, family: str, terms: str
) -> None:
    if family == "categorical" and "|" in terms:
        return
    with_oak, _, rows, table = _make(f"{OUTCOMES[family]} ~ {terms}", family, ("ash", "elm", "fir", "oak"))
    assert "no training row has the levels species[oak]" in caplog.text
    caplog.clear()
    plain, _, plain_rows, _ = _make(f"{OUTCOMES[family]} ~ {terms}", family, ("ash", "elm", "fir"))
    assert not caplog.messages
    labels, own = (
        [label for columns in each.plan.main.columns for label in columns.labels] for each in (with_oak, plain)
    )
    unused = [i for i, label in enumerate(labels) if label not in own]
    rest = np.setdiff1d(np.arange(len(labels)), unused)
    np.testing.assert_array_equal(with_oak.plan.main.sd[rest], plain.plan.main.sd)
    wanted = {"species[oak]": 1.0, "age:species[oak]": np.sqrt(np.square(table["age"]).mean())}
    for i in unused:
        assert with_oak.plan.main.sd[i] == pytest.approx(wanted[labels[i]])
    latents = with_oak.prior(with_oak.spec).sample(seed=jax.random.key(0))
    fewer = {name: values[rest] if name == "coefficients" else values for name, values in latents.items()}
    found = with_oak.log_likelihood(latents, rows)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, plain.log_likelihood(fewer, plain_rows), rtol=1e-12)
    # Away from the unused level, the density differs by the prior of its coefficients alone.
    scale = (
        2.5
        * (plain.spec.constants["outcome_scale"] if plain.family.is_in_unit else 1.0)
        / with_oak.plan.main.sd[unused]
    )
    z = np.asarray(latents["coefficients"])[unused] / scale.reshape(-1, *(1 for _ in with_oak.plan.main.output_shape))
    own_prior = np.sum(-0.5 * z**2 - 0.5 * np.log(2 * np.pi)) - np.log(scale).sum() * (z.size / len(unused))
    both = [each.prior(each.spec).log_prob(x) for each, x in ((with_oak, latents), (plain, fewer))]
    np.testing.assert_allclose(both[0], both[1] + own_prior, rtol=1e-8)
    bijector = with_oak.prior(with_oak.spec).experimental_default_event_space_bijector()
    back = bijector.forward(bijector.inverse(latents))
    for name, values in latents.items():
        np.testing.assert_allclose(back[name], values, rtol=1e-6, atol=1e-8)
    assert np.isfinite(bijector.forward_log_det_jacobian(bijector.inverse(latents)))
    facts = check_described(with_oak).facts
    assert "species[oak]" in facts["Levels without rows"]
    assert "Collinear columns" not in facts


def test_rows_of_one_level_leave_all_its_contrasts_to_their_priors(caplog: pytest.LogCaptureFixture) -> None:
    elms = np.flatnonzero(trees(NUM_ROWS)[1]["species"] == 1)
    model, made, rows, table = _make("growth ~ age + species", "normal", ("ash", "elm", "fir"), elms)
    assert "no training row has the levels species[fir]" in caplog.text
    assert "all training rows have the level species[elm]" in caplog.text
    np.testing.assert_array_equal(model.plan.main.sd[1:], [1.0, 1.0])
    np.testing.assert_array_equal(rows["design"][:, 1:], 0.0)
    held_out = made.of_rows({**table, "species": np.zeros_like(table["species"])}, len(elms))
    np.testing.assert_array_equal(held_out["design"][:, 1:], np.broadcast_to([-1.0, 0.0], (len(elms), 2)))
    assert "coefficients of species[elm], species[fir]" in check_described(model).facts["Levels without rows"]


def prepare(formula: str, outcome: Any, family: str = "normal", num_rows: int = 60, **options: Any) -> None:
    """Prepare trees whose growth is a function of the other columns."""
    spec, table = trees(num_rows)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepare_rows(functools.partial(Glm.prepare, own), spec, {**table, "growth": np.asarray(outcome(table), float)})


def of_site(table: Any) -> Any:
    return np.sin(table["site"] + 1.0)


def of_site_and_age(table: Any) -> Any:
    return of_site(table) + 0.3 * table["age"]


@pytest.mark.parametrize("family", ["normal", "student_t"])
@pytest.mark.parametrize(
    ("formula", "outcome", "said"),
    [
        ("growth ~ (1 | site)", of_site, "the groups 'site' and the columns explain the outcome 'growth' exactly"),
        ("growth ~ age + species + (1 | site)", of_site, "the groups 'site'"),
        ("growth ~ age + (1 | site)", of_site_and_age, "the groups 'site'"),
        ("growth ~ 0 + (1 + age | site)", of_site_and_age, "the groups 'site'"),
        ("growth ~ age", lambda table: 2 - 3.0 * table["age"], "the columns explain the outcome 'growth' exactly"),
        ("growth ~ species", lambda table: table["species"] ** 2, "the columns explain"),
    ],
)
def test_an_exact_fit_is_named_with_what_makes_it(
    caplog: pytest.LogCaptureFixture, formula: str, outcome: Any, family: str, said: str
) -> None:
    prepare(formula, outcome, family)
    assert said in caplog.text
    assert "keep one row of each group" in caplog.text
    caplog.clear()
    for proper in ("log_normal(0, 1)", "inverse_gamma(2, 1)", "gamma(80, 1)", "uniform(0.1, 3)"):
        prepare(formula, outcome, family, priors={"sigma": proper})
    assert not caplog.messages
    for improper in ("half_normal(1)", "gamma(2, 1)", "uniform(0, 1)"):
        prepare(formula, outcome, family, priors={"sigma": improper})
    assert len(caplog.messages) == 3


def test_as_many_effects_as_rows_explain_everything_and_are_proper(caplog: pytest.LogCaptureFixture) -> None:
    spec, table = trees(4)
    own = options_class("model", "glm")(formula="growth ~ (1 | site)")
    rows = {**table, "site": np.arange(4, dtype=np.int32)}
    assert len(spec.variables["site"].levels) >= 4
    prepare_rows(functools.partial(Glm.prepare, own), spec, rows)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("(1 + one || site)", "slopes of 'one' by 'site' are those of a column with the same value in all rows"),
        ("(1 + pair | site)", "slopes of 'pair[1]' by 'site'"),
        ("(0 + one | site)", ""),
        ("(1 + age + species | site)", ""),
    ],
)
def test_slopes_of_a_constant_column_are_named(caplog: pytest.LogCaptureFixture, terms: str, said: str) -> None:
    """They are allowed, because a fold may lack the rows in which a column differs."""
    spec, table = trees(NUM_ROWS)
    table = {**table, "one": np.full(NUM_ROWS, 2.0), "pair": np.stack([table["age"], np.ones(NUM_ROWS)], axis=1)}
    fields = {**spec.fields, "one": FieldSpec((), "float64"), "pair": FieldSpec((2,), "float64")}
    own = options_class("model", "glm")(formula=f"growth ~ {terms}")
    prepare_rows(functools.partial(Glm.prepare, own), dataclasses.replace(spec, fields=fields), table)
    assert said in caplog.text
    assert bool(caplog.messages) == bool(said)
