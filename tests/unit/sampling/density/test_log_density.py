"""The sharded, tiled log density is the plain one, for every model of the registry."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.kernels.base import POSITION, Position
from bayesmesh.sampling.program.values import place

NUM_CHAINS = 4
PRECISION = {"float64": 1e-12, "float32": 1e-5}


@pytest.fixture(scope="module", params=list_components("model"))
def case(request, make_case):
    return make_case(request.param)


def plain(case, z) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Values with their gradient, and the gradient of the prior.

    Float64, unsharded, untiled, by autodiff through prior and model as their author wrote them.
    """
    case = case.with_dtype("float64")
    prior = case.model.prior(case.spec)
    bijector = prior.experimental_default_event_space_bijector()

    def of_chain(z):
        def total(z):
            latents = bijector.forward(z)
            log_prior = prior.log_prob(latents) + bijector.forward_log_det_jacobian(z)
            likelihood = case.model.log_likelihood(latents, case.arrays).sum()
            return log_prior + likelihood, (log_prior, likelihood)

        gradient, (log_prior, likelihood) = jax.grad(total, has_aux=True)(z)
        of_prior = jax.grad(lambda z: prior.log_prob(bijector.forward(z)) + bijector.forward_log_det_jacobian(z))(z)
        return {"prior": log_prior, "likelihood": likelihood, **gradient}, of_prior

    return jax.device_get(jax.jit(jax.vmap(of_chain))(z))


def chain_keys() -> jax.Array:
    return jax.random.split(jax.random.key(2), NUM_CHAINS)


@pytest.fixture(scope="module")
def z(case) -> dict[str, np.ndarray]:
    """Unconstrained latents of draws of the prior, float64, in the prior's axes."""
    prior = case.model.prior(case.spec)
    bijector = prior.experimental_default_event_space_bijector()
    return jax.device_get(jax.jit(jax.vmap(lambda key: bijector.inverse(prior.sample(seed=key))))(chain_keys()))


@pytest.fixture(scope="module")
def expected_apart(case, z) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    return plain(case, z)


@pytest.fixture(scope="module")
def expected(expected_apart) -> dict[str, np.ndarray]:
    return expected_apart[0]


def assert_near(found, expected, precision: float) -> None:
    assert found.keys() == expected.keys()
    # A gradient is a difference of terms that may be as large as the likelihood; processors sum them in different orders.
    terms = 2e-4 * np.abs(expected.get("likelihood", 0.0)).max()
    for name, want in expected.items():
        bound = precision * max(1.0, np.abs(want).max(), terms)
        np.testing.assert_allclose(found[name], want, rtol=0, atol=bound, err_msg=name)


def by_latent(target, gradient: Position) -> dict[str, jax.Array]:
    """A gradient by latents in their own axes, and that of the padding behind them."""
    layout = target.position
    padding = {} if gradient.local is None else {"padding": gradient.local[:, layout.num_entries :]}
    return {**jax.vmap(lambda g: layout.unpack(g, jnp.dtype("float64")))(gradient), **padding}


def split_padding(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """What `by_latent` gave; the gradient of the padding must be zero."""
    found = jax.device_get(found)
    assert not found.pop("padding", np.zeros(0)).any(), "padding has a gradient"
    return found


_RUNS: dict[Any, Any] = {}


def evaluate(case, program, z, data=None) -> dict[str, np.ndarray]:
    """The density over the program's mesh, with positions and data placed as it places them."""
    target = program.target
    position = jax.jit(jax.vmap(target.position.pack))(z)
    there = jax.device_put(position, place(program.mesh, jax.eval_shape(lambda: position), POSITION))
    data = program.put_data(case.rows) if data is None else data

    def density_by_latent(position: Position, data: Any) -> tuple[Any, Any]:
        density = target.bind(data).log_density(position)
        return density, by_latent(target, density.gradient)

    # Compiled once for all tests of a layout.
    key = (case.name, str(target.dtype), type(target), tuple(program.mesh.shape.values()), target.layout)
    found, gradient = _RUNS.setdefault(key, jax.jit(density_by_latent))(there, data)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), found.gradient) == jax.tree.map(
        lambda x: (x.shape, x.dtype), position
    )
    assert found.log_prior.dtype == found.log_likelihood.dtype == jnp.float64
    values = {"prior": np.asarray(found.log_prior), "likelihood": np.asarray(found.log_likelihood)}
    return values | split_padding(gradient)


LAYOUTS = {"named": [((1, 1), 5), ((2, 4), 5)], "shard_map": [((2, 4), 5)]}
"""Way of sharding -> meshes (chain, data) and tiles; 37 rows are divided by none of them."""


@pytest.mark.parametrize(
    ("sharding", "mesh", "row_tile"), [(way, *layout) for way, layouts in LAYOUTS.items() for layout in layouts]
)
def test_the_sharded_density_is_the_plain_one(case, make_program, z, expected, sharding, mesh, row_tile) -> None:
    program = make_program(case, "chees", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding)
    assert_near(evaluate(case, program, z), expected, PRECISION["float64"])


@pytest.fixture(scope="module")
def rounded(z) -> dict[str, np.ndarray]:
    """Latents that float32 can hold."""
    return {k: v.astype(np.float32).astype(np.float64) for k, v in z.items()}


@pytest.fixture(scope="module")
def exact(case, make_program, rounded) -> dict[str, np.ndarray]:
    """Float64 at latents that float32 can hold."""
    return evaluate(case, make_program(case, "chees", num_chains=NUM_CHAINS, row_tile=5), rounded)


@pytest.mark.parametrize(
    ("sharding", "mesh", "row_tile"),
    [pytest.param("shard_map", (1, 7), 37, marks=pytest.mark.verify), ("named", (2, 4), 5)],
)
def test_float32_is_as_exact_as_it_can_be(case, make_program, rounded, exact, sharding, mesh, row_tile) -> None:
    """With one tile on each device, which the layouts above have not, and with several."""
    single = make_program(
        case.with_dtype("float32"), "chees", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding
    )
    assert_near(evaluate(case, single, rounded), exact, PRECISION["float32"])


@pytest.mark.verify
def test_both_ways_of_sharding_add_up_in_the_same_order(case, make_program, z) -> None:
    found = [
        evaluate(case, make_program(case, "chees", num_chains=NUM_CHAINS, mesh=(2, 4), row_tile=5, sharding=way), z)
        for way in LAYOUTS
    ]
    assert_near(found[1], found[0], 1e-14)


def test_the_parts_add_up_to_the_density(case, make_target, z, expected_apart) -> None:
    """Prior and likelihood apart, as tempering needs them."""
    target = make_target(case, 2, 7)
    bound = target.bind(target.lay_out(case.rows))

    @jax.jit
    def evaluate_parts(z: Any) -> tuple[Any, Any, Any]:
        parts = bound.log_density_parts(jax.vmap(target.position.pack)(z))
        total = jax.tree.map(jnp.add, parts.prior_gradient, parts.likelihood_gradient)
        values = {"prior": parts.log_prior, "likelihood": parts.log_likelihood}
        return values, by_latent(target, total), by_latent(target, parts.prior_gradient)

    values, total, of_prior = evaluate_parts(z)
    assert_near(jax.device_get(values) | split_padding(total), expected_apart[0], PRECISION["float64"])
    assert_near(split_padding(of_prior), expected_apart[1], PRECISION["float64"])


def test_positions_come_from_the_prior_whatever_the_layout(case, make_target, z) -> None:
    target = make_target(case, 7, 2)

    @jax.jit
    def sample(keys: jax.Array) -> dict[str, jax.Array]:
        return by_latent(target, jax.vmap(target.sample_prior)(keys))

    jax.tree.map(np.testing.assert_array_equal, split_padding(sample(chain_keys())), z)


def test_latents_return_to_the_shapes_of_the_prior(case, make_target) -> None:
    target = make_target(case, 7, 2)
    latents = jax.eval_shape(lambda: target.constrain(target.sample_prior(jax.random.key(0))))
    shapes = jax.eval_shape(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
    assert {k: (v.shape, v.dtype) for k, v in latents.items()} == {k: (v.shape, v.dtype) for k, v in shapes.items()}


def test_live_coordinates_are_those_of_the_prior(case, make_target) -> None:
    target = make_target(case, 7, 2)
    prior = case.model.prior(case.spec)
    bijector = prior.experimental_default_event_space_bijector()
    shapes = jax.eval_shape(lambda: bijector.inverse(prior.sample(seed=jax.random.key(0))))
    position, mask = target.position.position_shapes, target.bind({}).mask
    assert mask.shared is None
    shared = position.shared.shape[0] if position.shared is not None else 0
    local = int(mask.local.sum()) * position.local.shape[1] if position.local is not None else 0
    assert (mask.local is None) == (position.local is None)
    assert shared + local == sum(np.prod(v.shape) for v in shapes.values())


def test_data_are_laid_out_as_described(case, make_target) -> None:
    target = make_target(case.with_dtype("float32"), 7, 2)
    laid_out = target.lay_out(case.rows)
    assert {k: (v.shape, v.dtype) for k, v in laid_out.items()} == {
        k: (v.shape, np.dtype(v.dtype)) for k, v in target.data_shapes().items()
    }
    assert laid_out["is_row"].sum() == case.spec.num_rows
    for name, rows in case.rows.items():
        back = laid_out[name].reshape(-1, *rows.shape[1:])[laid_out["is_row"].ravel()]
        np.testing.assert_array_equal(back, rows.astype(laid_out[name].dtype))
        # Small integers stay small on the device.
        if rows.dtype.kind != "f":
            assert laid_out[name].dtype == rows.dtype


@pytest.mark.parametrize(("sharding", "mesh", "row_tile"), [("named", (2, 4), 5), ("shard_map", (2, 4), 5)])
def test_a_row_left_out_is_noticed(case, make_program, z, expected, sharding, mesh, row_tile) -> None:
    """The comparisons above can fail."""
    program = make_program(case, "chees", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding)
    whole = program.put_data(case.rows)
    less = np.asarray(whole["is_row"]).copy()
    less.reshape(-1)[11] = False
    data = whole | {"is_row": jax.device_put(less, program.data_shardings["is_row"])}
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_near(evaluate(case, program, z, data), expected, PRECISION["float64"])


def test_padding_repeats_a_row(case, make_target) -> None:
    """A zero may be what the model cannot take: the scale of an outcome, say."""
    target = make_target(case, num_devices=3, row_tile=2)
    laid_out = target.lay_out(case.rows)
    is_row = laid_out["is_row"].ravel()
    assert is_row.sum() == case.spec.num_rows < is_row.size
    for name, values in case.rows.items():
        flat = laid_out[name].reshape(-1, *values.shape[1:])
        np.testing.assert_array_equal(flat[~is_row], np.broadcast_to(flat[is_row][-1], flat[~is_row].shape))
