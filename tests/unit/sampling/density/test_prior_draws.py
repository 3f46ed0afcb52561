"""Datasets simulated from a model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.sampling.density.prior_draws import Simulator
from levels import groups_case


def test_outcomes_are_drawn_and_other_fields_stay(make_case, make_target) -> None:
    case = make_case("softmax_regression", num_rows=5)
    simulator = Simulator(make_target(case), case.rows)
    assert simulator.outcome == "label"
    found = simulator.draw(1, 3)
    assert {k: v.shape for k, v in found.rows.items()} == {k: (3, *v.shape) for k, v in case.rows.items()}
    np.testing.assert_array_equal(found.rows["features"][2], case.rows["features"])
    assert len({tuple(labels) for labels in found.rows["label"]}) == 3
    again = simulator.draw(1, 3)
    jax.tree.map(np.testing.assert_array_equal, found, again)


def test_outcomes_come_from_the_latents_beside_them(make_case, make_target) -> None:
    """Of groups of rows: residuals are standard normal in units of the group's scale."""
    case = groups_case(make_case)
    target = make_target(case)
    found = Simulator(target, case.rows).draw(2, 50)
    group = case.spec.entries_of(np.arange(case.spec.num_rows))
    mean = found.latents["centre"][:, None] + found.latents["levels"][:, group]
    residuals = (found.rows["x"] - mean) / np.swapaxes(found.latents["scales"], 1, 2)[:, group]
    assert abs(residuals.mean()) < 5 / np.sqrt(residuals.size)
    assert abs(residuals.var() - 1) < 5 * np.sqrt(2 / residuals.size)
    again = jax.vmap(target.constrain)(found.position)
    for name, values in found.latents.items():
        np.testing.assert_allclose(again[name], values, rtol=1e-12)


def test_a_series_is_simulated_from_its_own_past(make_case, make_target) -> None:
    """Each emission is predicted from those before it: with the same random numbers, what was drawn draws itself."""
    case = make_case("hidden_markov", num_rows=2)
    simulator = Simulator(make_target(case), case.rows)
    found = simulator.draw(3, 4)
    key = jax.random.split(jax.random.key(3), 4)[1]
    _, _, again = jax.jit(simulator._simulate)(key, jnp.asarray(found.rows["emissions"][1]))
    np.testing.assert_array_equal(again, found.rows["emissions"][1])
    assert not np.array_equal(found.rows["emissions"][1], case.rows["emissions"])
