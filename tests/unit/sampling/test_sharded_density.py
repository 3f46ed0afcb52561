"""The log density over any mesh and any tile is the log density of the model, for every model of the registry."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bayesmesh.experiment.registry import list_components

NUM_CHAINS = 2
PRECISION = {"float32": 1e-5, "float64": 1e-12}


@pytest.fixture(scope="module", params=list_components("model"))
def case(request, make_case):
    return make_case(request.param)


def positions(target: Any, seed: int = 3) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(seed), NUM_CHAINS)
    return jax.vmap(target.sample_prior)(keys)


def plain(case: Any, position: dict[str, jax.Array]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Log density and gradient written down directly: one device, all rows at once, float64, one chain."""
    model, spec = case.model, case.spec
    prior = model.prior(spec)
    bijector = prior.experimental_default_event_space_bijector()
    axes = model.local_latents

    def log_density(z: dict[str, jax.Array]) -> jax.Array:
        z = {k: jnp.moveaxis(v, 0, axes[k]) if k in axes else v for k, v in z.items()}
        latents = bijector.forward(z)
        return (
            prior.log_prob(latents)
            + bijector.forward_log_det_jacobian(z)
            + model.log_likelihood(latents, case.arrays).sum()
        )

    unpadded = {k: v[: spec.num_rows] if k in axes else v for k, v in position.items()}
    value, gradient = jax.value_and_grad(log_density)(unpadded)
    return np.asarray(value), {k: np.asarray(v) for k, v in gradient.items()}


def over_mesh(target: Any, case: Any, position: dict[str, jax.Array], shape: tuple[int, int]) -> Any:
    mesh = jax.make_mesh(
        shape, ("chain", "data"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[: shape[0] * shape[1]]
    )
    local = target.model.local_latents

    def put(value: Any, *axes: str) -> jax.Array:
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*axes)))

    data = {k: put(v, "data") for k, v in target.lay_out(case.rows).items()}
    placed = {k: put(v, "chain", "data") if k in local else put(v, "chain") for k, v in position.items()}
    return jax.jit(target.log_density)(placed, data)


def assert_near(actual: Any, expected: Any, precision: float, what: str) -> None:
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=0, atol=precision * scale, err_msg=what)


@pytest.mark.parametrize("dtype", sorted(PRECISION))
@pytest.mark.parametrize(
    ("mesh", "row_tile"),
    [((1, 1), 5), ((1, 2), 37), ((1, 4), 3), ((1, 7), 2), ((2, 2), 37)],
)
def test_every_mesh_and_tile_gives_the_unsharded_density(case, make_target, mesh, row_tile, dtype) -> None:
    reference, case = case, case.with_dtype(dtype)
    target = make_target(case, num_devices=mesh[1], row_tile=row_tile)
    position = positions(target)
    found = over_mesh(target, case, position, mesh)
    for chain in range(NUM_CHAINS):
        exact = {k: v[chain].astype(jnp.float64) for k, v in position.items()}
        value, gradient = plain(reference, exact)
        assert_near((found.log_prior + found.log_likelihood)[chain], value, PRECISION[dtype], "log density")
        for name, expected in gradient.items():
            got = np.asarray(found.gradient[name][chain])
            assert got.dtype == dtype
            assert_near(got[: len(expected)] if expected.ndim else got, expected, PRECISION[dtype], name)
            if name in target.model.local_latents:
                assert not got[len(expected) :].any(), "padding must have no gradient"


def test_the_prior_counts_no_padding(case, make_target) -> None:
    alone, padded = make_target(case), make_target(case, num_devices=7)
    at = {k: jnp.zeros((1, *s)) for k, s in alone.position_shapes.items()}
    wide = {k: jnp.zeros((1, *s)) for k, s in padded.position_shapes.items()}
    one, seven = over_mesh(alone, case, at, (1, 1)), over_mesh(padded, case, wide, (1, 7))
    assert float(one.log_prior[0]) == pytest.approx(float(seven.log_prior[0]), rel=1e-15)


def test_a_wrong_row_is_noticed(case, make_target) -> None:
    """The comparison above can fail: leave one row out of the mask and it does."""
    target = make_target(case, num_devices=4)
    position = positions(target)
    right = over_mesh(target, case, position, (1, 4))
    target.lay_out = lambda rows, lay_out=target.lay_out: {
        k: np.where(np.arange(v.size).reshape(v.shape) == 0, False, v) if k == "is_row" else v
        for k, v in lay_out(rows).items()
    }
    wrong = over_mesh(target, case, position, (1, 4))
    assert float(abs(right.log_likelihood - wrong.log_likelihood)[0]) > 1e-6
