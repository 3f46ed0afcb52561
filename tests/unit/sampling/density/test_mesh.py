"""Devices and meshes."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.sampling.density.mesh import build_mesh, compute_once, sharding

NUM_DEVICES = 8


def test_auto_takes_every_device_for_rows_when_sharded() -> None:
    mesh = build_mesh(ComputeSettings(), num_chains=4, is_sharded=True)
    assert dict(mesh.shape) == {"chain": 1, "data": NUM_DEVICES}


@pytest.mark.parametrize(("num_chains", "expected"), [(1, 1), (6, 2), (8, 8), (12, 4), (24, 8)])
def test_auto_takes_devices_that_divide_the_chains_otherwise(num_chains: int, expected: int) -> None:
    mesh = build_mesh(ComputeSettings(), num_chains=num_chains, is_sharded=False)
    assert dict(mesh.shape) == {"chain": expected, "data": 1}


def test_one_device_computes_and_all_receive() -> None:
    mesh = build_mesh(ComputeSettings(mesh={"chain": 2, "data": 2}), num_chains=2, is_sharded=True)
    calls: list[int] = []

    def double(x: jax.Array) -> dict[str, jax.Array]:
        jax.debug.callback(lambda: calls.append(1))
        return {"twice": 2 * x, "count": jnp.asarray(7, jnp.int32)}

    argument = jax.device_put(np.arange(6.0), sharding(mesh))
    made = jax.jit(lambda x: compute_once(mesh, double, x))(argument)
    jax.effects_barrier()
    assert len(calls) == 1
    assert made["count"] == 7
    assert {float(s.data[3]) for s in made["twice"].addressable_shards} == {6.0}
    assert len(made["twice"].sharding.device_set) == 4
    np.testing.assert_array_equal(made["twice"], 2 * np.arange(6.0))


def python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


CONFIGURE = """
from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.sampling.density.mesh import build_mesh, configure_jax
compute = ComputeSettings.model_validate({settings})
configure_jax(compute, {cores})
"""


@pytest.mark.parametrize(
    ("settings", "cores", "expected"),
    [({}, 3, 3), ({"mesh": {"chain": 1, "data": 2}}, 3, 3), ({"mesh": {"chain": 2, "data": 2}}, 3, 3)],
)
def test_a_core_is_a_device_on_a_cpu(settings, cores: int, expected: int, user_environment) -> None:
    code = CONFIGURE.format(settings=settings, cores=cores) + (
        "import jax, jax.numpy as jnp\n"
        "print(len(jax.devices()), jnp.zeros(()).dtype, jax.config.jax_default_matmul_precision)"
    )
    done = python(code, user_environment)
    assert done.stdout.split() == [str(expected), "float64", "highest"], done.stderr


def test_a_mesh_beyond_the_cores_of_a_job_is_refused_and_not_run_on_one_device(user_environment) -> None:
    code = CONFIGURE.format(settings={"mesh": {"chain": 2, "data": 2}}, cores=3) + (
        "from bayesmesh.errors import DeviceError\n"
        "try:\n    build_mesh(compute, num_chains=2, is_sharded=True)\n"
        "except DeviceError as error:\n    print(error)"
    )
    said = python(code, user_environment).stdout
    assert "compute.mesh: chain 2 x data 2 needs 4 devices, but this job sees 3 (cpu)" in said
    assert "mesh: auto" in said
    assert "--cores" in said


def test_variables_of_jax_do_not_change_draws(user_environment) -> None:
    """Set in the middle of a chain, they would go unseen: what decides random numbers is set here."""
    code = CONFIGURE.format(settings={}, cores=1) + (
        "import jax\nprint(jax.random.key_data(jax.random.fold_in(jax.random.key(3), 5)).tolist(), "
        "jax.random.normal(jax.random.key(3), (3,)).tolist())"
    )
    changed = {"JAX_DEFAULT_PRNG_IMPL": "rbg", "JAX_RANDOM_SEED_OFFSET": "5", "JAX_THREEFRY_PARTITIONABLE": "0"}
    expected, found = (python(code, {**user_environment, **more}).stdout for more in ({}, changed))
    assert found == expected != ""
