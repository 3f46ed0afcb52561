"""The sharded, tiled log density is the plain one, for every model of the registry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density

NUM_CHAINS = 4
PRECISION = {"float64": 1e-12, "float32": 1e-5}


@pytest.fixture(scope="module", params=list_components("model"))
def case(request, make_case):
    return make_case(request.param)


def unpadded(case, density: Density) -> dict[str, np.ndarray]:
    """Value and gradient without what lies behind the rows, which must be zero."""
    found = {"prior": np.asarray(density.log_prior), "likelihood": np.asarray(density.log_likelihood)}
    for name, gradient in density.gradient.items():
        values = np.asarray(gradient)
        if name in case.model_class.local_latents:
            assert not values[:, case.spec.num_rows :].any(), "padding has a gradient"
            values = values[:, : case.spec.num_rows]
        found[name] = values
    return found


def plain(case, target) -> dict[str, np.ndarray]:
    """Float64, unsharded, untiled, by autodiff through prior and model as their author wrote them."""
    case = case.with_dtype("float64")
    prior, axes = case.model.prior(case.spec), case.model_class.local_latents
    bijector = prior.experimental_default_event_space_bijector()

    def of_chain(key: jax.Array):
        z = bijector.inverse(prior.sample(seed=key))

        def total(z):
            latents = bijector.forward(z)
            log_prior = prior.log_prob(latents) + bijector.forward_log_det_jacobian(z)
            likelihood = case.model.log_likelihood(latents, case.arrays).sum()
            return log_prior + likelihood, (log_prior, likelihood)

        gradient, (log_prior, likelihood) = jax.grad(total, has_aux=True)(z)
        rows_first = {k: jnp.moveaxis(v, axes[k], 0) if k in axes else v for k, v in gradient.items()}
        return {"prior": log_prior, "likelihood": likelihood, **rows_first}

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(of_chain))(chain_keys()))


def chain_keys() -> jax.Array:
    return jax.random.split(jax.random.key(2), NUM_CHAINS)


@pytest.fixture(scope="module")
def expected(case, make_target) -> dict[str, np.ndarray]:
    return plain(case, make_target(case))


def assert_near(found, expected, precision: float) -> None:
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        bound = precision * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(found[name], want, rtol=0, atol=bound, err_msg=name)


@pytest.fixture(scope="module")
def position(case, make_target) -> dict[str, np.ndarray]:
    """Draws of the prior, float64, without padding."""
    return jax.device_get(jax.jit(jax.vmap(make_target(case).sample_prior))(chain_keys()))


def evaluate(case, program, position) -> dict[str, np.ndarray]:
    """The density over the program's mesh, with positions and data placed as it places them."""
    target = program.target
    shapes = {k: jax.ShapeDtypeStruct((NUM_CHAINS, *s), target.dtype) for k, s in target.position_shapes.items()}
    placed = program.place_state(shapes)
    padded = {}
    for name, shape in shapes.items():
        padded[name] = np.zeros(shape.shape, shape.dtype)
        padded[name][tuple(slice(n) for n in position[name].shape)] = position[name]
    there = {k: jax.device_put(v, placed[k]) for k, v in padded.items()}
    found = jax.jit(target.log_density)(there, program.put_data(case.rows))
    assert {k: (v.shape, v.dtype) for k, v in found.gradient.items()} == {
        k: (v.shape, v.dtype) for k, v in padded.items()
    }
    assert found.log_prior.dtype == found.log_likelihood.dtype == jnp.float64
    return unpadded(case, found)


LAYOUTS = {
    "named": [((1, 1), 5), ((4, 2), 7)],
    "shard_map": [((1, 4), 4), ((1, 7), 37)],
}
"""Way of sharding -> meshes (chain, data) and tiles; 37 rows are divided by none of them."""


@pytest.mark.parametrize(
    ("sharding", "mesh", "row_tile"), [(way, *layout) for way, layouts in LAYOUTS.items() for layout in layouts]
)
def test_the_sharded_density_is_the_plain_one(case, make_program, position, expected, sharding, mesh, row_tile) -> None:
    program = make_program(case, "chees", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding)
    assert_near(evaluate(case, program, position), expected, PRECISION["float64"])


@pytest.fixture(scope="module")
def rounded(position) -> dict[str, np.ndarray]:
    """Positions that float32 can hold."""
    return {k: v.astype(np.float32) for k, v in position.items()}


@pytest.fixture(scope="module")
def exact(case, make_program, rounded) -> dict[str, np.ndarray]:
    """Float64 at positions that float32 can hold."""
    return evaluate(case, make_program(case, "chees", num_chains=NUM_CHAINS), rounded)


@pytest.mark.parametrize(("sharding", "mesh", "row_tile"), [("named", (1, 1), 37), ("shard_map", (2, 4), 5)])
def test_float32_is_as_exact_as_it_can_be(case, make_program, rounded, exact, sharding, mesh, row_tile) -> None:
    single = make_program(
        case.with_dtype("float32"), "chees", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding
    )
    assert_near(evaluate(case, single, rounded), exact, PRECISION["float32"])


def test_both_ways_of_sharding_add_up_in_the_same_order(case, make_program, position) -> None:
    found = [
        evaluate(
            case, make_program(case, "chees", num_chains=NUM_CHAINS, mesh=(1, 7), row_tile=5, sharding=way), position
        )
        for way in LAYOUTS
    ]
    assert_near(found[1], found[0], 1e-14)


def test_positions_come_from_the_prior_whatever_the_layout(case, make_target) -> None:
    one, several = (make_target(case, *layout) for layout in ((1, 37), (7, 2)))
    first, second = (jax.jit(t.sample_prior)(jax.random.key(0)) for t in (one, several))
    for name, value in first.items():
        padded = np.zeros(second[name].shape)
        padded[tuple(slice(n) for n in value.shape)] = value
        np.testing.assert_array_equal(second[name], padded)


def test_latents_return_to_the_shapes_of_the_prior(case, make_target) -> None:
    target = make_target(case, 7, 2)
    latents = jax.eval_shape(lambda: target.constrain(target.sample_prior(jax.random.key(0))))
    shapes = jax.eval_shape(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
    assert {k: (v.shape, v.dtype) for k, v in latents.items()} == {k: (v.shape, v.dtype) for k, v in shapes.items()}


def test_active_coordinates_are_those_of_the_prior(case, make_target) -> None:
    target = make_target(case, 7, 2)
    prior = case.model.prior(case.spec)
    bijector = prior.experimental_default_event_space_bijector()
    shapes = jax.eval_shape(lambda: bijector.inverse(prior.sample(seed=jax.random.key(0))))
    for name, active in target.active().items():
        assert active.shape == target.position_shapes[name]
        assert active.sum() == np.prod(shapes[name].shape)


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


@pytest.mark.parametrize("sharding", LAYOUTS)
def test_a_row_left_out_is_noticed(case, make_program, position, expected, sharding) -> None:
    """The comparisons above can fail."""
    program = make_program(case, "chees", num_chains=NUM_CHAINS, mesh=(1, 4), sharding=sharding)
    whole = program.target.lay_out(case.rows)
    less = whole | {"is_row": whole["is_row"] & (np.arange(whole["is_row"].size) != 11).reshape(whole["is_row"].shape)}
    program.target.lay_out = lambda rows, devices: less
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_near(evaluate(case, program, position), expected, PRECISION["float64"])


def test_a_likelihood_that_is_no_value_a_row_is_refused(case, make_target, monkeypatch) -> None:
    """Whatever it is: a length of 1, and all lengths at one row, would be counted once for every row."""
    right = case.model_class.log_likelihood
    for wrong in (
        lambda *given: right(*given).sum(),
        lambda *given: right(*given).sum(keepdims=True),
        lambda *given: right(*given)[:, None],
        lambda *given: jnp.resize(right(*given), 2),
    ):
        monkeypatch.setattr(case.model_class, "log_likelihood", wrong)
        with pytest.raises(ConfigError, match=rf"{case.model_class.__name__}: its log_likelihood has shape \(.*for \d"):
            make_target(case)


def test_padding_repeats_a_row(case, make_target) -> None:
    """A zero may be what the model cannot take: the scale of an outcome, say."""
    target = make_target(case, num_devices=3, row_tile=2)
    laid_out = target.lay_out(case.rows)
    is_row = laid_out["is_row"].ravel()
    assert is_row.sum() == case.spec.num_rows < is_row.size
    for name, values in case.rows.items():
        flat = laid_out[name].reshape(-1, *values.shape[1:])
        np.testing.assert_array_equal(flat[~is_row], np.broadcast_to(flat[is_row][-1], flat[~is_row].shape))
