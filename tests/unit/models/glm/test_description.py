"""What a page says of a linear model: changes of predictors against the predictor itself, priors, units and remedies."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.model import Glm
from bayesmesh.sampling.checks.model import check_described
from cases import trees

OUTCOMES = {
    "normal": "growth", "student_t": "growth", "bernoulli": "alive", "binomial": "seeds", "poisson": "leaves",
    "negative_binomial": "leaves", "gamma": "mass", "categorical": "stage", "ordinal": "stage",
}  # fmt: skip


def standardised(names: tuple[str, ...]) -> tuple[DataSpec, dict[str, np.ndarray]]:
    """Return the table of trees with some of its columns standardised, as its source would do it."""
    spec, rows = trees(60)
    variables = dict(spec.variables)
    for name in names:
        mean, scale = float(rows[name].mean()), float(rows[name].std())
        rows[name] = (rows[name] - mean) / scale
        variables[name] = dataclasses.replace(variables[name], mean=mean, scale=scale)
    return dataclasses.replace(spec, variables=variables), rows


def make(
    formula: str, family: str, names: tuple[str, ...] = (), **options: Any
) -> tuple[Glm, Any, dict[str, np.ndarray]]:
    """Return a model, a function from rows of the table to its predictors at a draw, and the rows."""
    spec, table = standardised(names)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepared, _ = prepare_rows(lambda s, read: Glm.prepare(own, s, read), spec, table)
    model, of_rows = Glm(own, prepared), Glm.prepare(own, spec, lambda: iter([table])).of_rows

    def predictor(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, Any]:
        latents = model.prior(model.spec).sample(seed=jax.random.key(1))
        made = {name: jnp.asarray(values) for name, values in of_rows(rows, len(rows["age"])).items()}
        found = model.summaries(latents, made)
        return np.asarray(found["predictor"]), found

    return model, predictor, table


@pytest.mark.parametrize(("family", "names"), [("normal", ("age",)), ("poisson", ()), ("categorical", ("age",))])
def test_a_change_of_a_predictor_is_that_of_the_linear_predictor(family: str, names: tuple[str, ...]) -> None:
    model, predictor, table = make(f"{OUTCOMES[family]} ~ age + species + log(mass)", family, names)
    about = check_described(model)
    assert about.effects is not None
    words = [change.words for change in about.effects.changes]
    sd = re.search(r"\(([\d.]+)\)", words[1])
    assert words[0] == "one more unit of age"
    assert sd is not None
    scale = model.spec.variables["age"].scale
    assert float(sd[1]) == pytest.approx(table["age"].std() * scale, rel=1e-2)
    assert words[2:] == ["elm instead of ash (species)", "fir instead of ash (species)", "doubling mass"]
    base, found = predictor({**table, "species": np.zeros_like(table["species"])})
    changed = {
        "one more unit of age": {"age": table["age"] + 1 / scale},
        "elm instead of ash (species)": {"species": np.ones_like(table["species"])},
        "doubling mass": {"mass": 2 * table["mass"]},
    }
    axes = model.axes()
    for change in about.effects.changes:
        if change.words not in changed:
            continue
        moved, _ = predictor({**table, "species": np.zeros_like(table["species"]), **changed[change.words]})
        axis = axes[change.summary][0] if axes[change.summary] else None
        place = axis.labels.index(change.entry) if axis is not None and change.entry and axis.labels else ()
        np.testing.assert_allclose(moved - base, np.broadcast_to(change.factor * np.asarray(found[change.summary])[place], base.shape), rtol=1e-4, atol=1e-5)  # fmt: skip
