"""Condensed rows of linear models have the likelihood of the rows that they stand for, and its gradient."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.models.glm.model import Glm
from cases import condensed, trees

NUM_ROWS = 400

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "normal": ("growth ~ age + species + (1 + mass | site)", "normal", {"local_group": "site", "weights": "plots"}),
    "normal, crossed": ("growth ~ age + (1 | site) + (0 + age | species)", "normal", {"offset": "mass"}),
    "normal, groups alone": ("growth ~ 0 + age + (1 | site)", "normal", {}),
    "normal, no groups": ("growth ~ 0 + age + mass", "normal", {}),
    "same rows": ("alive ~ species + (1 | site)", "bernoulli", {"local_group": "site", "weights": "plots"}),
}


FAR = [("normal", 1e8, 1.0), ("normal", 0.0, 1e9), ("normal, crossed", 1e8, 1e-3), ("normal, groups alone", 1e8, 1.0)]
"""Outcomes far from 0, or in a unit in which they are large."""


@pytest.mark.parametrize(("case", "shift", "unit"), [*((case, 0.0, 1.0) for case in CASES), *FAR])
def test_condensed_rows_say_as_much(case: str, shift: float, unit: float) -> None:
    formula, family, options = CASES[case]
    spec, table = trees(NUM_ROWS)
    table = {**table, "growth": shift + unit * table["growth"]}
    own = options_class("model", "glm")(formula=formula, family=family, integrated_group="none", **options)
    prepared, rows, few, read = condensed(own, spec, table)
    assert few.num_rows < NUM_ROWS / 4
    assert few.num_entries == (5 if options.get("local_group") else few.num_rows)

    def total(spec: Any, rows: Any, latents: Any) -> jax.Array:
        model = Glm(own, spec)
        entries = jnp.asarray(spec.entries_of(np.arange(spec.num_rows)))
        aligned = {name: latents[name][entries] for name in model.local_latents}
        return model.log_likelihood({**latents, **aligned}, {k: jnp.asarray(v) for k, v in rows.items()}).sum()

    latents = Glm(own, prepared).prior(prepared).sample(seed=jax.random.key(3))
    if case == "normal, groups alone":
        # The prior of effects is about 0, where nothing of the outcome would be left to lose.
        latents["effects_site"] += shift
    one, other = (
        jax.value_and_grad(functools.partial(total, *each))(latents) for each in ((prepared, rows), (few, read))
    )
    # Of the outcome's own digits, fewer are left.
    loss = max(1.0, abs(shift) / (unit * 1e4))
    np.testing.assert_allclose(other[0], one[0], rtol=1e-10 * loss)
    for name, gradient in one[1].items():
        np.testing.assert_allclose(other[1][name], gradient, rtol=1e-7 * loss, atol=1e-7 * np.abs(gradient).max())
