"""gradients: Compare gradients of log densities with the products of matrices and the reading of data that they consist of.

A case is a model on random data of a published size, its chains, and the metric of a kernel. Its gradient takes turns
with two limits on the same devices: square products with as many operations as the case's own products (arithmetic), and
reading the rows once (bandwidth). A ratio of 0.8 to the first is a gradient at 80% of the machine's own rate.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.laplace import Curvature, split_triangle
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.sampling.density.mesh import DATA_AXIS, build_mesh, configure_jax, sharding
from bayesmesh.sampling.program.sizes import make_program
from bayesmesh.sampling.program.values import place
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import Job
from bayesmesh_reproduction.benchmarks.harness import Case, Measurement, Options, Outcome, compare, ratio
from bayesmesh_reproduction.benchmarks.process import Contender, list_platforms

SIDE = 2048
"""Rows of the square matrices that show the rate of the machine."""

REPEATS = 3
"""Number of evaluations in a run, one after the other."""

_WIDTH = 20
"""Of the factorisation, as published."""


class GradientCase(TypedDict):
    """A model, rows and columns of its data, its chains and whether gradients are whitened by a dense metric."""

    model: str
    rows: int
    columns: int
    chains: int
    metric: str


class _Size(NamedTuple):
    """What a case's own products cost, and what they read.

    Attributes:
        operations: additions and multiplications of one gradient of all chains.
        row_bytes: bytes of the rows.
    """

    operations: float
    row_bytes: float


def run(options: Options) -> Outcome:
    """Measure every case on every platform."""
    images = options.pick((60_000, 784), quick=(600, 40))
    ratings = options.pick((6_040, 3_706), quick=(90, 70))
    cases: list[GradientCase] = [
        {"model": "softmax_regression", "rows": images[0], "columns": images[1], "chains": chains, "metric": metric}
        for chains, metric in ((1, "none"), (16, "none"), (16, "dense"))
    ]
    cases += [
        {"model": "matrix_factorization", "rows": ratings[0], "columns": ratings[1], "chains": chains, "metric": "none"}
        for chains in (2, 4)
    ]
    limits = options.limits(run_s=max(options.seconds_limit, 120.0), rounds=options.pick(5, quick=2), case_s=120)
    platforms = list_platforms()
    measured = compare([Case(dict(case), _contenders(platforms)) for case in cases], limits)
    ratios = [
        ratio(measured, dict(case), f"gradient {p}", against=f"{limit} {p}")
        for case in cases
        for p in platforms
        for limit in ("products", "reading")
    ]
    return Outcome([_with_rate(m) for m in measured], ratios, ("gradients_per_s",))


def _contenders(platforms: dict[str, str]) -> list[Contender]:
    works = {"gradient": "Gradient", "products": "Products", "reading": "Reading"}
    return [
        Contender(f"{name} {platform}", f"{__name__}:{work}", variables={"JAX_PLATFORMS": variable})
        for platform, variable in platforms.items()
        for name, work in works.items()
    ]


def _with_rate(measured: Measurement) -> dict[str, object]:
    row = measured.row()
    seconds = row["median_s"]
    if isinstance(seconds, float):
        row["gradients_per_s"] = REPEATS * measured.case["chains"] / seconds
        row["gflops"] = REPEATS * size_of(measured.case).operations / seconds / 1e9  # type: ignore[arg-type]
    return row


def size_of(case: GradientCase) -> _Size:
    """Return the operations of one gradient of all chains, and the bytes of its rows.

    >>> size_of({"model": "softmax_regression", "rows": 10, "columns": 3, "chains": 2, "metric": "none"}).operations
    3200.0
    """
    rows, columns, chains = case["rows"], case["columns"], case["chains"]
    if case["model"] == "softmax_regression":
        # Logits, and the gradient by the weights: a product of rows, inputs with a one, and 10 classes each.
        coordinates = 10 * (columns + 1)
        # Two products with a triangular matrix, whose zeros cost nothing.
        dense = 2 * coordinates * (coordinates + 1) * chains if case["metric"] == "dense" else 0
        return _Size(2.0 * 2 * rows * coordinates * chains + dense, 1.0 * rows * columns)
    # Logits, and the gradients by the embeddings of users and of films.
    return _Size(3.0 * 2 * rows * columns * _WIDTH * chains, 1.0 * rows * columns)


def _make_data(case: GradientCase) -> tuple[DataSpec, dict[str, np.ndarray]]:

    random = np.random.default_rng(1)
    shape = case["rows"], case["columns"]
    if case["model"] == "softmax_regression":
        labels = random.integers(0, 10, case["rows"]).astype(np.uint8)
        rows = {"features": random.integers(0, 256, shape).astype(np.uint8), "label": labels}
        constants: dict[str, float | int] = {"num_classes": 10, "feature_scale": 255}
    else:
        rows, constants = {"watched": (random.random(shape) < 0.05).astype(np.uint8)}, {}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    return DataSpec(case["rows"], fields, constants, "float32"), rows


def _devices() -> Mesh:
    """Return the mesh of a sharded experiment on all devices."""

    compute = ComputeSettings()
    configure_jax(compute)
    return build_mesh(compute, num_chains=1, is_sharded=True)


class Gradient:
    """The gradient of a model's log density at positions of all chains, as a kernel calls it."""

    def prepare(self, case: GradientCase) -> dict[str, object]:
        """Place the rows, and compile."""

        data_spec, rows = _make_data(case)
        options = {"width": _WIDTH} if case["model"] == "matrix_factorization" else {}
        config = {
            "model": {"name": case["model"], **options},
            "kernel": {"name": "hmc"},
            "sampling": {"mode": "sharded", "chains": case["chains"]},
            "compute": {},
        }
        job = Job(stage="sample", experiment="gradients", config=config, num_chains=case["chains"])
        configure_jax(job.compute)
        program = make_program(program_settings(job), data_spec, slice_draws=1)
        target, mesh = program.target, program.mesh
        self._data = program.put_data(rows)
        shapes = target.position.position_shapes
        self._at = jax.tree.map(lambda x: jnp.full((case["chains"], *x.shape), 0.01, x.dtype), shapes)
        self._metric = None
        if case["metric"] == "dense":
            assert shapes.shared is not None  # all weights are shared
            (size,) = shapes.shared.shape
            factor = split_triangle(jnp.triu(jnp.full((size, size), 1e-3, jnp.float32)))
            made = Curvature(jnp.arange(size, dtype=jnp.int32), factor, None, None, None)
            # Where the state of a kernel has it: otherwise every call would copy it to all devices.
            axes = load_metric("curvature", program.kernel.options).data_axes()
            self._metric = jax.device_put(made, place(mesh, made, axes))

        def evaluate(at: Position, data: Any, metric: Curvature | None) -> Position:
            bound = target.bind(data)

            def once(_: object, at: Position) -> Position:
                moved = at if metric is None else metric.move(at)
                gradient = bound.log_density(moved).gradient
                whitened = gradient if metric is None else metric.move(gradient, is_transposed=True)
                return jax.tree.map(lambda x, g: x + 1e-12 * g, at, whitened)

            return jax.lax.fori_loop(0, REPEATS, once, at)

        self._evaluate = jax.jit(evaluate)
        jax.block_until_ready(self._evaluate(self._at, self._data, self._metric))
        return {"device": jax.devices()[0].device_kind, "num_devices": mesh.size, "row_tile": target.layout.tile_rows}

    def run(self, repeat: int) -> dict[str, object]:
        """Evaluate, one after the other."""

        jax.block_until_ready(self._evaluate(self._at, self._data, self._metric))
        return {}


class Products:
    """As many operations in products of square float32 matrices, on all devices side by side."""

    def prepare(self, case: GradientCase) -> dict[str, object]:
        """Make the matrices, and compile."""
        mesh = _devices()

        each = REPEATS * size_of(case).operations / mesh.size
        count = max(1, round(each / (2 * SIDE**3)))
        side = max(1, round((each / (2 * count)) ** (1 / 3)))
        left, right = np.random.default_rng(1).standard_normal((2, mesh.size, side, side), np.float32) / side**0.5
        self._matrices = _spread(left, mesh), _spread(right, mesh)

        def product(left: jax.Array, right: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, count, lambda _, x: x @ right, left)

        self._product = jax.jit(product)
        jax.block_until_ready(self._product(*self._matrices))
        return {"device": jax.devices()[0].device_kind, "num_devices": mesh.size, "side": side, "count": count}

    def run(self, repeat: int) -> dict[str, object]:
        """Multiply."""

        jax.block_until_ready(self._product(*self._matrices))
        return {}


class Reading:
    """The sum of as many bytes as the rows have, read once for each gradient of all chains."""

    def prepare(self, case: GradientCase) -> dict[str, object]:
        """Make the bytes, and compile."""
        mesh = _devices()

        numbers = round(size_of(case).row_bytes / 4 / mesh.size)
        self._numbers = _spread(np.full((mesh.size, numbers), 1 / numbers, np.float32), mesh)

        def read(numbers: jax.Array) -> jax.Array:
            def once(_: object, total: jax.Array) -> jax.Array:
                # The total doubles: what is read depends on what was read before, so no pass can be left out.
                return total + (numbers * total[:, :1]).sum(axis=1, keepdims=True)

            return jax.lax.fori_loop(0, REPEATS, once, jnp.ones((mesh.size, 1), jnp.float32))

        self._read = jax.jit(read)
        jax.block_until_ready(self._read(self._numbers))
        return {"device": jax.devices()[0].device_kind, "num_devices": mesh.size}

    def run(self, repeat: int) -> dict[str, object]:
        """Read."""

        jax.block_until_ready(self._read(self._numbers))
        return {}


def _spread(values: np.ndarray, mesh: Mesh) -> jax.Array:
    """Place an array (device, ...) on the devices."""

    return jax.device_put(values, sharding(mesh, DATA_AXIS))
