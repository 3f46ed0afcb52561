"""Where chains start."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.laplace import measure_curvature
from bayesmesh.kernels.hamiltonian.metrics.base import standard_normal
from bayesmesh.sampling.program.initial import climb, draw_at_mode
from bayesmesh.sampling.program.values import GroupKey


def total(density) -> np.ndarray:
    return np.asarray(density.log_prior + density.log_likelihood)


# The climb knows no model: one with shared latents, one with local ones, and one whose likelihood is a scan.
@pytest.mark.parametrize("name", ["softmax_regression", "matrix_factorization", "hidden_markov"])
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


LONG = ("glm", "hidden_markov", "matrix_factorization", "rating_factorization")
"""Models whose Hessians take ten seconds to compile."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.verify) if name in LONG else name for name in list_components("model")],
)
def test_the_curvature_is_that_of_the_whole_hessian(name, make_case, make_target) -> None:
    """Products with tangents, or the model's information, give the blocks of the Hessian that JAX computes whole.

    Padding has variance 1.
    """
    case = make_case(name)
    target = make_target(case, 4, 3)
    bound = target.bind(target.lay_out(case.rows))
    start = jax.tree.map(lambda x: 0.3 * x[None], target.sample_prior(jax.random.key(1)))
    units = [b.indices for b in target.position.blocks().values() if b.part == "shared"]

    @jax.jit
    def compare(at):
        at = climb(at, bound.log_density, 100, 0.1)
        whole = jax.jacfwd(lambda q: jax.tree.map(jnp.negative, bound.log_density(q).gradient))(at)
        return whole, measure_curvature(bound.expand(at), at, units)

    whole, curvature = compare(start)
    pairs = []
    if start.shared is not None:
        hessian = np.asarray(whole.shared.shared)[0, :, 0]
        if curvature.dense is not None:
            pairs.append((*curvature.dense, hessian[np.ix_(curvature.rest, curvature.rest)]))
        if curvature.blocks is not None:
            pairs += [(a, hessian[np.ix_(u, u)]) for a, u in zip(curvature.blocks, curvature.units, strict=True)]
    if start.local is not None:
        hessian = np.asarray(whole.local.local)[0, :, :, 0]
        living = case.spec.num_entries
        pairs += [(a, hessian[i, :, i]) for i, a in enumerate(curvature.local[:living])]
        np.testing.assert_array_equal(
            curvature.local[living:], np.eye(hessian.shape[1])[None] + 0 * curvature.local[living:]
        )
    assert pairs
    for root, expected in pairs:
        root = np.asarray(root)
        if np.linalg.eigvalsh(expected).min() > 1e-6 * np.abs(expected).max():
            np.testing.assert_allclose(root.T @ expected @ root, np.eye(len(root)), atol=1e-6)
        assert np.isfinite(root).all()


def test_an_expanded_likelihood_has_the_value_and_derivatives_of_the_likelihood(make_case, make_target) -> None:
    """And a quadratic form in between: with the normal prior the Hessian is the same everywhere."""
    case = make_case("softmax_regression")
    target = make_target(case, 4, 3)
    bound = target.bind(target.lay_out(case.rows))
    draw = jax.jit(jax.vmap(target.sample_prior))
    at, there = (draw(jax.random.key(i)[None]) for i in (1, 2))
    assert bound.expand(at) is not bound

    @jax.jit
    def densities(at, there):
        expanded = bound.expand(at)
        return expanded.log_density(at), bound.log_density(at), expanded.log_density(there)

    expanded, plain, risen = densities(at, there)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), expanded, plain)
    (low, at_low), (high, at_high) = (
        ((d.log_prior + d.log_likelihood)[0], d.gradient.shared[0]) for d in (expanded, risen)
    )
    step = there.shared[0] - at.shared[0]
    np.testing.assert_allclose(high - low, (at_low + at_high) @ step / 2, rtol=1e-9)


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


def test_a_uniform_start_is_the_same_however_wide_the_prior(make_case, make_program) -> None:
    narrow, wide = (
        np.asarray(
            initial_positions(make_program, make_case("softmax_regression", prior_scale=scale), {"method": "uniform"})[
                1
            ].position[0]
        )
        for scale in (1.0, 1e6)
    )
    np.testing.assert_array_equal(narrow, wide)
    assert np.abs(wide).max() < 2
    np.testing.assert_allclose([wide.mean(), wide.std()], [0, 2 / np.sqrt(3)], atol=0.15)


def test_a_start_from_the_prior_is_spread_as_the_prior(make_case, make_program) -> None:
    case = make_case("softmax_regression", prior_scale=3.0)
    _, state = initial_positions(make_program, case, {"method": "prior", "spread": 0.5})
    np.testing.assert_allclose(np.asarray(state.position.shared).std(), 1.5, rtol=0.1)


@pytest.mark.parametrize(("widening", "climbers"), [(1.0, 4), (3.0, 1)])
def test_draws_of_the_normal_at_the_mode_have_its_moments(make_case, make_program, widening, climbers) -> None:
    """Of a normal posterior, whose precision is the number of rows and one more, they are draws, wherever the climb began."""
    case, num_chains = make_case("gaussian"), 2000
    initial = {"method": "laplace", "spread": 0.1, "widening": widening, "climbers": climbers, "steps": 20}
    program = make_program(case, "hmc", num_chains=num_chains, initial=initial, kernel_options={"metric": "curvature"})
    (state, adaptation), _ = jax.jit(program.initialise)(program.arguments(GroupKey(1, 0)), program.put_data(case.rows))
    precision, values = len(case.rows["x"]) + 1, np.asarray(state.position.shared)
    sd = widening / precision**0.5
    np.testing.assert_allclose(values.mean(0), case.rows["x"].sum(axis=0) / precision, atol=5 * sd / num_chains**0.5)
    np.testing.assert_allclose(np.cov(values.T) / sd**2, np.eye(2), atol=5 * (2 / num_chains) ** 0.5)
    np.testing.assert_allclose(*adaptation.metric.dense, np.eye(2) / precision**0.5, atol=1e-9)


def test_curvature_at_a_draw_is_that_of_the_hessian_at_a_typical_point(make_case, make_target) -> None:
    case = make_case("softmax_regression")
    target = make_target(case, 4, 3)
    bound = target.bind(target.lay_out(case.rows))
    keys = jax.random.split(jax.random.key(3), 5)
    climbed = jax.tree.map(lambda x: 0.1 * x[None], target.sample_prior(jax.random.key(1)))

    @jax.jit
    def run(climbed):
        draws, at_mode = draw_at_mode(keys, climbed, bound, 1.0)
        others, at_draw = draw_at_mode(keys, climbed, bound, 1.0, "draw")
        noise = standard_normal(jax.vmap(lambda k: jax.random.fold_in(k, 3))(keys[:1]), climbed, bound.mask)
        there = jax.tree.map(jnp.add, at_mode.mean, at_mode.curvature.move(noise))
        hessian = jax.jacfwd(lambda q: -bound.log_density(q).gradient.shared)(there).shared[0, :, 0]
        return draws, others, at_mode, at_draw, hessian

    draws, others, at_mode, at_draw, hessian = run(climbed)
    np.testing.assert_array_equal(at_mode.mean.shared, at_draw.mean.shared)
    (root,), (root_at_mode,) = (np.asarray(n.curvature.dense) for n in (at_draw, at_mode))
    np.testing.assert_allclose(root.T @ hessian @ root, np.eye(len(root)), atol=1e-6)
    assert np.abs(root_at_mode - root).max() > 1e-3, "it is another at the mode"
    noise = (np.asarray(x.shared - n.mean.shared) for x, n in ((draws, at_mode), (others, at_draw)))
    solved = [np.linalg.solve(factor, x.T) for x, factor in zip(noise, (root_at_mode, root), strict=True)]
    np.testing.assert_allclose(*solved, atol=1e-6, err_msg="the same standard normal numbers")


@pytest.mark.verify
def test_a_dense_factor_is_shared_by_devices_and_moves_chains_as_on_one(make_case, build) -> None:
    case = make_case("softmax_regression")

    def build_on(*mesh: int):
        initial = {"method": "laplace", "steps": 30, "curvature_at": "draw"}
        return build(
            case, "hmc", num_warmup=2, mesh=mesh, initial=initial, is_optimised=False, metric="curvature", num_leapfrog_steps=3
        )  # fmt: skip

    alone, shared = build_on(1, 1), build_on(2, 2)
    begun = [b.compiled["initialise"](b.arguments(), b.data)[0].adaptation.metric.dense for b in (alone, shared)]
    (of_one,), (of_all,) = begun
    assert {shard.data.shape for shard in of_all.addressable_shards} == {(len(of_one), len(of_one) // 2)}
    assert np.abs(np.asarray(of_one) - np.eye(len(of_one))).max() > 0.01
    np.testing.assert_allclose(of_all, of_one, rtol=1e-7, atol=1e-9)
    expected = alone.run(3).draws
    assert np.diff(expected["weights"], axis=0).any(axis=(0, 2, 3)).all(), "all chains move"
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-8), shared.run(3).draws, expected)


@pytest.mark.verify
def test_trajectories_in_the_normal_at_the_mode_depend_neither_on_devices_nor_on_where_a_run_is_cut(
    make_case, build
) -> None:
    """Of a model with local latents and a declared axis, whose blocks of entries lie with their data.

    Through checkpoints after every third iteration.
    """
    case = make_case("matrix_factorization")

    def build_on(mesh: tuple[int, int]):
        return build(
            case, "hmc", num_chains=3, num_warmup=6, mesh=mesh, row_tile=5, initial={"method": "laplace", "steps": 30},
            is_optimised=False, integrator="split", metric="curvature", trajectory_length=1.6, num_leapfrog_steps=8,
            initial_step_size=0.5, jitter=0.2,
        )  # fmt: skip

    def run(built, segment: int = 0):
        return built.run(8, segment=segment, is_through_host=segment > 0)

    alone, mesh = build_on((1, 1)), build_on((3, 2))
    whole, cut, spread = run(alone), run(alone, 3), run(mesh)
    assert (whole.statistics["acceptance_rate"] > 0).any()
    assert whole.statistics["n_steps"].max() > 1
    jax.tree.map(np.testing.assert_array_equal, (whole.draws, whole.statistics), (cut.draws, cut.statistics))
    for name, expected in whole.draws.items():
        np.testing.assert_allclose(spread.draws[name], expected, rtol=1e-6, atol=1e-7, err_msg=name)
    begun, _ = mesh.compiled["initialise"](mesh.arguments(), mesh.data)
    metric, entries = begun.adaptation.metric, case.spec.num_entries
    assert len(metric.local.sharding.device_set) == 6
    one, _ = alone.compiled["initialise"](alone.arguments(), alone.data)
    expected = one.adaptation.metric
    np.testing.assert_allclose(metric.blocks, expected.blocks, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(metric.local[:entries], expected.local[:entries], rtol=1e-8, atol=1e-10)
