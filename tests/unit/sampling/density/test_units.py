"""Densities by units: their sums are the density, each is of its unit alone, and the layout of rows changes nothing."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.unit_hmc import Options, UnitHmc, UnitTuning
from bayesmesh.models.matrix_factorization import MatrixFactorization
from bayesmesh.sampling.density.log_density import BoundTarget, Target
from bayesmesh.sampling.density.rows import lay_out_rows
from cases import make_case

WIDTH, NUM_CHAINS = 2, 3
FAST = {"xla_backend_optimization_level": 0}
"""Optimising these programs takes longer than running them."""

LAYOUTS = {"whole": (1, 100), "padded": (2, 5)}
"""Devices and rows of a tile; 37 rows leave padding on the second."""


@functools.cache
def bound(layout: str, dtype: str = "float64") -> BoundTarget:
    case = make_case("matrix_factorization", dtype, width=WIDTH, prior_scale=0.7)
    target = Target(case.model, case.spec, lay_out_rows(case.spec.num_rows, *LAYOUTS[layout]))
    return target.bind({k: jnp.asarray(v) for k, v in target.lay_out(case.rows).items()})


@functools.cache
def draws(target: BoundTarget) -> Position:
    return jax.vmap(target.target.sample_prior)(jax.random.split(jax.random.key(3), NUM_CHAINS))


@functools.cache
def programs(layout: str, group: int) -> tuple[Any, ...]:
    """Density of the target; densities and gradients of a group at (units, position); its scale at positions."""
    target = bound(layout)

    def density(at: Any, position: Position) -> Any:
        conditional = target.units.given(position, group)
        return conditional.density(at), conditional.gradient(at)

    def scale(position: Position) -> Any:
        information = jax.tree.map(lambda x: x.mean(axis=0), target.units.information(draws(target)))
        return target.units.given(position, group).scale(information)

    return tuple(jax.jit(f, compiler_options=FAST) for f in (target.log_density, density, scale))


def entries(position: Position) -> Position:
    """Without what is behind the entries."""
    num = bound("whole").target.position.num_entries
    return position._replace(local=position.local[..., :num, :])


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_units_sum_to_the_density(layout: str, group: int) -> None:
    target, position = bound(layout), draws(bound(layout))
    log_density, density, _ = programs(layout, group)
    whole, start = log_density(position), target.units.given(position, group).start
    found, between = density(start, position)
    np.testing.assert_allclose(found.log_likelihood.sum(axis=1), whole.log_likelihood, rtol=1e-12)
    expected = target.units.take(whole.gradient, target.units.groups[group])
    for gradient in (found.gradient, between):
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


@pytest.mark.parametrize("group", [0, 1])
def test_a_unit_changes_the_density_by_its_own_change(group: int) -> None:
    target, position, unit = bound("padded"), draws(bound("padded")), 2
    log_density, density, _ = programs("padded", group)
    conditional = target.units.given(position, group)
    moved = conditional.start.at[:, unit].add(0.5)
    before, after = (density(x, position)[0] for x in (conditional.start, moved))
    then, now = (log_density(conditional.place(x)) for x in (conditional.start, moved))
    for name in ("log_prior", "log_likelihood"):
        change = np.array(getattr(after, name) - getattr(before, name))
        np.testing.assert_allclose(change[:, unit], getattr(now, name) - getattr(then, name), rtol=1e-9, atol=1e-9)
        change[:, unit] = 0
        np.testing.assert_allclose(change, 0, atol=1e-12)


@pytest.mark.parametrize("group", [0, 1])
def test_the_scale_of_units_is_near_their_curvature_and_does_not_depend_on_them(group: int) -> None:
    """Whitened by it, the Hessian of a unit's log density has eigenvalues around 1."""
    target, position = bound("padded"), draws(bound("padded"))
    _, _, scale_at = programs("padded", group)
    conditional, scale = target.units.given(position, group), scale_at(position)
    jax.tree.map(np.testing.assert_array_equal, scale, scale_at(conditional.place(conditional.start + 1.0)))

    @functools.partial(jax.jit, compiler_options=FAST)
    def product(p: jax.Array) -> jax.Array:
        slope = target.units.given(position, group).gradient
        _, change = jax.jvp(slope, (conditional.start,), (scale.move(p),))
        return -scale.whiten(change)

    basis = jnp.eye(conditional.start.shape[2])
    columns = [product(jnp.broadcast_to(e, conditional.start.shape)) for e in basis]
    values = np.linalg.eigvalsh(np.stack(columns, axis=-1)[:, :37])
    assert values.min() > 0.3
    assert values.max() < 3


KERNEL = UnitHmc(Options(rounds=2), 0)


@functools.cache
def transition(layout: str) -> Any:
    target = bound(layout)

    def go(state: Any, key: jax.Array) -> tuple[Any, Any]:
        information = jax.tree.map(lambda x: x.mean(axis=0), target.units.information(draws(target)))
        return KERNEL.step(key, state, target, UnitTuning(jnp.asarray([0.9, 0.8]), information))

    return jax.jit(go, compiler_options=FAST)


def run(layout: str, count: int = 3, cut: int | None = None) -> tuple[Any, Any]:
    target, keys = bound(layout), jax.random.split(jax.random.key(1), NUM_CHAINS)
    state, info, go = KERNEL.init(keys, draws(target), target), None, transition(layout)
    for i in range(count):
        if i == cut:
            state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x).copy()), state)
        state, info = go(state, jax.vmap(lambda k, i=i: jax.random.fold_in(k, i))(keys))
    return state, info


@pytest.mark.verify
def test_the_layout_of_rows_changes_no_draw() -> None:
    (one, info), (other, other_info) = run("whole"), run("padded")
    for a, b in zip(entries(one.position), entries(other.position), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    np.testing.assert_allclose(info.acceptance_rate, other_info.acceptance_rate, rtol=1e-8)
    assert not other.position.local[:, 37:].any(), "padding has moved"


@pytest.mark.verify
def test_the_layout_of_rows_changes_nothing_that_warmup_learns_by_unit() -> None:
    """From a scale so wide that many units accept seldom."""
    kernel, found = UnitHmc(Options(initial_step_size=1.0), 1_000), {}
    for layout in LAYOUTS:
        target, keys = bound(layout), jax.random.split(jax.random.key(1), NUM_CHAINS)

        def learn(i: jax.Array, carry: Any, target: BoundTarget = target, keys: jax.Array = keys) -> Any:
            state, adaptation = carry
            folded = jax.vmap(lambda k: jax.random.fold_in(k, i))(keys)
            after, info = kernel.step(folded, state, target, kernel.tuning(adaptation, True))
            return after, kernel.adapt(adaptation, state, after, info, target)

        state = kernel.init(keys, draws(target), target)
        go = jax.jit(lambda *carry, learn=learn: jax.lax.fori_loop(0, 5, learn, carry), compiler_options=FAST)
        begin = kernel.init_adaptation(state, target)
        wide = begin._replace(information=jax.tree.map(lambda x: 0.02 * x, begin.information))
        _, found[layout] = go(state, wide)
    one, other = found["whole"], found["padded"]
    assert (entries(one.log_inflation).local > 0).mean() > 0.1
    for name in ("information", "largest", "log_inflation"):
        for a, b in zip(entries(getattr(one, name)), entries(getattr(other, name)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert not other.log_inflation.local[37:].any(), "padding has learnt"


def test_the_state_carries_its_density_and_is_its_own_checkpoint() -> None:
    (state, info), (again, _) = run("padded"), run("padded", cut=1)
    jax.tree.map(np.testing.assert_array_equal, state, again)
    assert info.accepted.all()
    fresh = programs("padded", 0)[0](state.position)
    np.testing.assert_allclose(state.log_prior, fresh.log_prior, rtol=1e-12)
    np.testing.assert_allclose(state.log_likelihood, fresh.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"unit_groups": ("local",)}, "film_biases, film_embeddings, which would never move"),
        ({"unit_groups": ("local", "movies")}, "names 'movies', and `blocks` has films"),
    ],
)
def test_groups_that_do_not_fit_are_refused(attributes: dict[str, Any], message: str) -> None:
    target = bound("whole").target
    other = type("Other", (MatrixFactorization,), attributes)(target.model.options, target.spec)
    with pytest.raises(ConfigError, match=message):
        _ = Target(other, target.spec, target.layout).bind(bound("whole").data).units
