"""Where chains start."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.kernels.base import Position
from bayesmesh.sampling.initial import climb
from bayesmesh.sampling.program import GroupKey


def total(density) -> np.ndarray:
    return np.asarray(density.log_prior + density.log_likelihood)


@pytest.mark.parametrize("name", list_components("model"))
def test_a_climb_ends_higher_for_every_chain(name, make_case, make_target) -> None:
    case = make_case(name)
    target = make_target(case, 4, 3)
    data = target.lay_out(case.rows)
    position = jax.jit(jax.vmap(target.sample_prior))(jax.random.split(jax.random.key(0), 3))

    @jax.jit
    def run(position):
        def density(q):
            return target.bind(data).log_density(q)

        top = climb(position, density, 40, 0.05)
        return density(position), density(top), top

    before, after, top = run(position)
    assert (total(after) > total(before)).all()
    if target.model.local_latents:
        assert top.local.shape[1] > case.spec.num_rows
        assert not top.local[:, case.spec.num_rows :].any()


def test_a_climb_reaches_the_mode_of_a_normal(make_case, make_target) -> None:
    case = make_case("gaussian")
    target = make_target(case)
    data = target.lay_out(case.rows)
    start = Position(jnp.asarray([[3.0, -2.0], [0.0, 0.0]]), None)
    top = jax.jit(lambda q: climb(q, target.bind(data).log_density, 400, 0.1))(start)
    mode = case.rows["x"].sum(axis=0) / (len(case.rows["x"]) + 1)
    np.testing.assert_allclose(top.shared, np.broadcast_to(mode, (2, 2)), atol=1e-3)


def initial_positions(make_program, case, initial, first_chain: int = 0):
    program = make_program(case, "hmc", num_chains=3, initial=initial)
    data = program.put_data(case.rows)
    state, _ = jax.jit(program.initialise)(program.arguments(GroupKey(1, first_chain)), data)
    return program, state.kernel


@pytest.mark.parametrize("spread", [0.0001, 1.0])
def test_a_start_near_zero_is_spread_about_it(make_case, make_program, spread) -> None:
    case = make_case("softmax_regression")
    _, state = initial_positions(make_program, case, {"method": "zero", "spread": spread})
    values = np.ravel(state.position.shared)
    np.testing.assert_allclose(values.std(), spread, rtol=0.1)
    assert len(np.unique(values)) == values.size


def test_a_start_from_the_prior_is_spread_as_the_prior(make_case, make_program) -> None:
    case = make_case("softmax_regression", prior_scale=3.0)
    _, state = initial_positions(make_program, case, {"method": "prior", "spread": 0.5})
    np.testing.assert_allclose(np.asarray(state.position.shared).std(), 1.5, rtol=0.1)


def test_a_start_at_the_mode_is_higher_than_the_prior_s(make_case, make_program) -> None:
    case = make_case("softmax_regression")
    _, prior = initial_positions(make_program, case, {"method": "prior"})
    _, mode = initial_positions(make_program, case, {"method": "mode", "steps": 50})
    assert (total(mode) > total(prior) + 10).all()
