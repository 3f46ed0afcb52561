"""The paths of models for GPUs, held to the plain ones, with the same steps on a CPU.

A kernel of our own does not run there: `stand_in` computes what it does from the same operands, and a test lowers the kernel
itself. `tools/gpu_paths.py` compares it on a GPU.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import ComputeSettings, MeshSettings
from bayesmesh.config.registry import list_components, load_component
from bayesmesh.models import _fused_cells, softmax_regression
from bayesmesh.models.base import Model
from bayesmesh.sampling.density import sharding as program_sharding
from bayesmesh.sampling.density.costs import cost_of_gradient
from bayesmesh.sampling.density.mesh import build_mesh
from bayesmesh.sampling.density.rows import lay_out_rows
from programs import build

MODELS = [
    name
    for name in list_components("model")
    if load_component("model", name).log_likelihood_and_gradient_on_gpu is not Model.log_likelihood_and_gradient_on_gpu
]
GPU_PATHS = {name: load_component("model", name).gpu_path for name in MODELS}
SIZES = [0.0, 1e-4, 1.0, 40.0, 1e4]
MOST_ERROR = {"softmax_regression": 5e-6, "matrix_factorization": 5e-4}
"""Of gradients, relative to their size: the second rounds residuals to float16."""


def stand_in(tiles: Any) -> Any:
    """Return what `_fused_cells._kernel` does, in plain JAX: products of the same parts, and the same partial sums."""

    def run(users: Any, films: Any, words: Any) -> tuple[Any, Any, Any]:
        users, films = users.astype(jnp.float32), films.astype(jnp.float32)
        logits = users[0] @ films[0].T + users[0] @ films[1].T + users[1] @ films[0].T
        watched = ((words[:, :, None] >> jnp.arange(32)) & 1).reshape(logits.shape).astype(jnp.float32)
        residual, bits = _fused_cells.cell_terms(logits, watched)
        residual = jax.lax.reduce_precision(residual, 5, 10)
        by_range = residual.reshape(len(logits), tiles.num_films, -1)
        both = films.sum(0).reshape(tiles.num_films, -1, 32)
        return (
            bits.reshape(len(logits), tiles.num_films, -1).sum(2).T,
            jnp.einsum("nrc,rck->rnk", by_range, both),
            jnp.einsum("snc,snk->sck", residual.reshape(tiles.num_users, -1, logits.shape[1]), users.sum(0).reshape(tiles.num_users, -1, 32)),
        )  # fmt: skip

    return run


def on_gpu(case: Any) -> Any:
    """Return the path for GPUs as a program calls it, which prepares the rows once."""
    model = case.model
    return lambda latents, rows, is_row: model.log_likelihood_and_gradient_on_gpu(
        latents, {**rows, **model.rows_on_gpu(rows)}, is_row
    )


def difference(gradient: dict[str, jax.Array], wanted: dict[str, jax.Array]) -> float:
    """Return the largest difference, relative to the largest entry of each latent's gradient or to 1."""
    pairs = [(gradient[name], wanted[name]) for name in wanted]
    return max(float(jnp.max(jnp.abs(a - b)) / max(1.0, float(jnp.max(jnp.abs(b))))) for a, b in pairs)


@pytest.fixture(params=MODELS)
def case(request, make_case, monkeypatch):
    monkeypatch.setattr(_fused_cells, "_kernel", stand_in)
    return make_case(request.param).with_dtype("float32")


@pytest.fixture
def draws(case) -> dict[str, jax.Array]:
    """Latents of three chains."""
    return jax.vmap(lambda key: case.model.prior(case.spec).sample(seed=key))(jax.random.split(jax.random.key(1), 3))


@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_plain_path(case, draws, size) -> None:
    is_row = jnp.arange(case.spec.num_rows) < case.spec.num_rows - 2
    scaled = {name: size * values for name, values in draws.items()}

    def evaluate(method, latents):
        return jax.jit(jax.vmap(lambda one: method(one, case.arrays, is_row)))(latents)

    wide = {name: values.astype(jnp.float64) for name, values in scaled.items()}
    value, gradient = evaluate(case.model.log_likelihood_and_gradient, wide)
    mine, by_latent = evaluate(on_gpu(case), scaled)
    assert mine.dtype == jnp.float64
    np.testing.assert_allclose(mine, value, rtol=2e-6)
    # Logits of thousands are off by 1e-4 in float32, however they are computed.
    _, plain = evaluate(case.model.log_likelihood_and_gradient, scaled)
    assert difference(by_latent, gradient) < max(MOST_ERROR[case.name], 3 * difference(plain, gradient))
    assert {name: v.dtype for name, v in by_latent.items()} == dict.fromkeys(draws, jnp.float32)


def test_second_derivatives_are_those_of_the_plain_path(case, draws) -> None:
    """As the curvature at a mode needs them: along a direction, through the density that kernels see."""
    layout = lay_out_rows(case.spec.num_rows, 1, case.spec.num_rows)
    latents = {name: values[:1] for name, values in draws.items()}
    found = {}
    for on_gpu in (True, False):
        target = program_sharding.Target(case.model, case.spec, layout)
        target.uses_gpu_path = on_gpu
        data = {k: jnp.asarray(v) for k, v in target.lay_out(case.rows).items()}
        at = jax.vmap(target.position.pack)(dict(target.bijector.inverse(latents)))
        bound = target.bind(data)
        found[on_gpu] = jax.jvp(lambda x, b=bound: b.log_density(x).gradient, (at,), (at,))[1]
    for mine, wanted in zip(jax.tree.leaves(found[True]), jax.tree.leaves(found[False]), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("platform", "capability", "expected"),
    [
        ("gpu", "9.0", {"softmax_regression": 2, "matrix_factorization": 1}),
        ("gpu", "8.0", {"softmax_regression": 2}),
        ("gpu", "10.0", {"softmax_regression": 2}),
        ("gpu", "7.5", {}),
        ("gpu", "gfx942", {}),
        ("cpu", "", {}),
    ],
)
@pytest.mark.parametrize("num_devices", [1, 2])
def test_only_gpus_that_a_path_is_for_take_it(case, platform, capability, expected, num_devices) -> None:
    """Expected: the most devices that do."""
    device = SimpleNamespace(platform=platform, compute_capability=capability)
    layout = lay_out_rows(case.spec.num_rows, 1, case.spec.num_rows)
    mesh = SimpleNamespace(devices=np.array([[device] * num_devices], object))
    for sharding in ("named", "shard_map"):
        target = program_sharding.make_target(case.model, case.spec, layout, mesh, sharding)
        assert target.uses_gpu_path is (num_devices <= expected.get(case.name, 0))


@pytest.mark.parametrize("case", [name for name in MODELS if GPU_PATHS[name].num_devices is None], indirect=True)
@pytest.mark.parametrize("sharding", ["named", "shard_map"])
def test_rows_may_lie_on_several_devices(case, draws, sharding) -> None:
    settings = ComputeSettings(mesh=MeshSettings(chain=1, data=4))
    mesh = build_mesh(settings, num_chains=3, is_sharded=True)
    target = program_sharding.make_target(case.model, case.spec, lay_out_rows(case.spec.num_rows, 4, 5), mesh, sharding)
    target.uses_gpu_path = True
    rows = target.lay_out(case.rows)
    place = jax.NamedSharding(mesh, jax.P("data"))
    data = target.add_gpu_rows({name: jax.device_put(values, place) for name, values in rows.items()})
    value, gradient = jax.jit(target.likelihood_and_gradient)(draws, data)
    is_row = jnp.ones(case.spec.num_rows, bool)
    wanted = jax.vmap(lambda one: case.model.log_likelihood_and_gradient(one, case.arrays, is_row))(draws)
    np.testing.assert_allclose(value, wanted[0], rtol=2e-6)
    assert difference(gradient, wanted[1]) < MOST_ERROR[case.name]


def test_the_fused_kernel_is_lowered_for_a_gpu_without_one() -> None:
    """Layouts of registers and shared memory, and shapes of products, are checked on the way."""
    shapes = [((2, 300, 22), "float32"), ((2, 150, 22), "float32"), ((300, 150), "uint8")]
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]

    def sums(users: Any, films: Any, watched: Any) -> Any:
        words = _fused_cells.pack_bits(watched)
        return jax.vmap(_fused_cells.sum_cells, in_axes=(0, 0, None))(users, films, words)

    traced = jax.jit(sums).trace(*arguments)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("initial", ["prior", "laplace"])
def test_whole_programs_take_the_path(case, monkeypatch, initial) -> None:
    """Numeric options are arguments of a program there, and data have no more than their own fields before it is made."""
    settings = {"num_chains": 2, "num_warmup": 4, "most_draws": 4, "initial": {"method": initial}}
    plain = build(case, "hmc", num_leapfrog_steps=3, **settings)
    monkeypatch.setattr(program_sharding, "_takes_gpu_path", lambda model, devices: True)
    built = build(case, "hmc", num_leapfrog_steps=3, **settings)
    assert built.program.target.uses_gpu_path
    assert not plain.program.target.uses_gpu_path
    mine, wanted = built.run(4), plain.run(4)
    np.testing.assert_allclose(
        mine.warmup_statistics["log_likelihood"][0], wanted.warmup_statistics["log_likelihood"][0], rtol=1e-3
    )
    assert all(np.all(np.isfinite(values)) for values in mine.draws.values())
    assert cost_of_gradient(built.program.target, 2) == cost_of_gradient(plain.program.target, 2)


def test_three_parts_are_a_float32_number() -> None:
    """Each is a bfloat16 number: the last 16 bits are zero, and nothing is left over."""
    values = jnp.asarray(np.random.default_rng(1).standard_normal((40, 3)) * 10.0 ** np.arange(-6, 6, 4), jnp.float32)
    parts = jnp.split(softmax_regression._in_three(values), 3, axis=-1)
    assert all(part.dtype == jnp.bfloat16 for part in parts)
    np.testing.assert_array_equal(sum(part.astype(jnp.float64) for part in parts), values.astype(jnp.float64))


def test_products_of_bytes_are_exact_and_blocks_of_rows_join(monkeypatch) -> None:
    generator = np.random.default_rng(2)
    monkeypatch.setattr(softmax_regression, "_BLOCK_ROWS", 7)
    values = jnp.asarray(generator.integers(0, 256, (23, 5)), jnp.uint8)
    left, right = generator.integers(-99, 99, (5, 4)), generator.integers(-99, 99, (23, 4))
    # Whole numbers have exact float32 sums here.
    np.testing.assert_array_equal(
        softmax_regression.byte_product(values, jnp.asarray(left, jnp.float32)), np.asarray(values, int) @ left
    )
    product = softmax_regression.transposed_byte_product(values, jnp.asarray(right, jnp.float32))
    np.testing.assert_array_equal(product, np.asarray(values, int).T @ right)
    assert softmax_regression.are_bytes(values)
    assert not softmax_regression.are_bytes(values.astype(jnp.uint16))
