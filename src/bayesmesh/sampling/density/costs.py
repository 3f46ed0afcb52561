"""Estimate the cost of a gradient before anything is compiled: the largest array of a row, operations, bytes, seconds."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun
from jax.sharding import Mesh

from bayesmesh.data.base import DataSpec
from bayesmesh.kernels.base import Position
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

TILE_ELEMENTS = {"cpu": 2**19, "gpu": 2**26, "tpu": 2**24}
"""Largest intermediate of a tile of rows for all chains of a device, in elements."""

RATES = {"cpu": (5e9, 2e10), "gpu": (5e12, 1e12), "tpu": (5e12, 1e12)}
"""Platform -> operations and bytes per second, of a host's cores or of one device."""

LEAST_SECONDS = 1e-4
"""Lower bound on the estimated seconds of one gradient; the prior, the map from unconstrained space and kernel launches are not counted."""


def row_tile(model: Model, spec: DataSpec, num_chains: int, platform: str) -> int:
    """Return how many rows to take at a time, from the size of the largest array that one row causes.

    Args:
        model: the model.
        spec: its data.
        num_chains: chains of one device.
        platform: platform of the devices.
    """
    target = Target(model, spec, lay_out_rows(spec.num_rows, 1, spec.num_rows, spec.entry_counts))
    _, shapes = jax.eval_shape(target.prior_and_latents, target.position.position_shapes)
    # A model may put the rows on any axis. Their number is seldom the length of another axis; where it is, tiles are smaller than necessary.
    rows = 61

    def of_chains(shape: jax.ShapeDtypeStruct, *, is_local: bool) -> jax.ShapeDtypeStruct:
        entries = (rows, *shape.shape[1:]) if is_local else shape.shape
        return jax.ShapeDtypeStruct((num_chains, *entries), shape.dtype)

    shared = {k: of_chains(v, is_local=False) for k, v in shapes.items() if k not in model.local_latents}
    local = {k: of_chains(v, is_local=True) for k, v in shapes.items() if k not in shared}
    data = {k: jax.ShapeDtypeStruct((rows, *v.shape[3:]), v.dtype) for k, v in target.data_shapes().items()}
    # Data exist once for all chains; only arrays that depend on a chain exist once per chain.
    jaxpr = jax.make_jaxpr(jax.vmap(target.tile, in_axes=(0, 0, None)))(shared, local, data)
    largest = max((math.prod(shape) for shape in _shapes_of_arrays(jaxpr) if rows in shape), default=rows) / rows
    return max(1, int(most_elements(platform) / largest))


def most_elements(platform: str) -> int:
    """Return the most elements that the largest array of a tile of rows should have, for all chains of a device."""
    return TILE_ELEMENTS.get(platform, TILE_ELEMENTS["gpu"])


def _shapes_of_arrays(jaxpr: ClosedJaxpr) -> list[tuple[int, ...]]:
    arrays = [*jaxpr.jaxpr.invars, *(v for equation in equations_of(jaxpr) for v in equation.outvars)]
    return [getattr(v.aval, "shape", ()) for v in arrays]


def equations_of(jaxpr: ClosedJaxpr | Jaxpr) -> Iterator[JaxprEqn]:
    """Yield the equations of a jaxpr, including nested ones; the body of a loop appears once."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in _inner(equation):
            yield from equations_of(inner)


def _inner(equation: JaxprEqn) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in equation.params.values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                yield item


def of_chains(target: Target, num_chains: int) -> Position:
    """Return the abstract position of some chains."""
    return jax.tree.map(lambda s: s.update(shape=(num_chains, *s.shape)), target.position.position_shapes)


class Cost(NamedTuple):
    """Cost of one gradient of all chains.

    Attributes:
        flops, bytes: from XLA's analysis of one tile times the number of tiles, with loops times their length.
        equations: of the gradient of a tile's log likelihood; the body of a loop counts once.
        is_counted: whether the analysis counts all operations: there is no loop of unknown length, no sort, and no call out of XLA.
    """

    flops: float
    bytes: float
    equations: int
    is_counted: bool


@functools.lru_cache(maxsize=1)
def cost_of_gradient(target: Target, num_chains: int) -> Cost:
    """Return the cost of one gradient of all chains, before anything is compiled."""
    traced = trace_tile(target, num_chains)
    tiles, lowered = target.layout.num_tiles * target.layout.num_devices, traced.lower()
    flops, num_bytes = cost_with_loops(traced.jaxpr, lowered.cost_analysis())
    primitives = [equation.primitive.name for equation in equations_of(traced.jaxpr)]
    is_counted = not {"while", "sort"} & {*primitives} and "custom_call" not in lowered.as_text()
    return Cost(flops * tiles, num_bytes * tiles, len(primitives), is_counted)


def largest_array(target: Target, num_chains: int) -> int:
    """Return the number of elements of the largest array in the gradient of a tile of rows, for all chains."""
    return max(math.prod(shape) for shape in _shapes_of_arrays(trace_tile(target, num_chains).jaxpr))


@functools.lru_cache(maxsize=1)
def trace_tile(target: Target, num_chains: int) -> jax.stages.Traced:
    """Trace the log likelihood of a tile of rows and its gradient for all chains, by the plain path."""
    # XLA's analysis counts a model's own kernel as a single operation, whatever it computes.
    target = copy.copy(target)
    target.uses_gpu_path = False
    # A latent may have another shape than its position: a simplex has one entry more.
    _, latents = jax.eval_shape(jax.vmap(target.prior_and_latents), of_chains(target, num_chains))
    shared = {k: v for k, v in latents.items() if k not in target.model.local_latents}
    entries = target.layout.tile_entries
    local = {
        k: jax.ShapeDtypeStruct((num_chains, entries, *v.shape[2:]), v.dtype)
        for k, v in latents.items()
        if k not in shared
    }
    data = {k: jax.ShapeDtypeStruct(v.shape[2:], v.dtype) for k, v in target.data_shapes().items()}
    return jax.jit(jax.vmap(target.tile, in_axes=(0, 0, None))).trace(shared, local, data)


def cost_with_loops(jaxpr: ClosedJaxpr, analysis: Mapping[str, float] | None) -> tuple[float, float]:
    """Return FLOPs and bytes, counting the body of a scan as often as it runs; XLA's analysis counts it once.

    A `while_loop`, whose number of iterations is not known before it runs, counts as one iteration.

    Args:
        jaxpr: the computation.
        analysis: XLA's analysis of it; None if there is none.
    """
    flops, num_bytes = _flops_and_bytes(analysis)
    for body, length, counted in _scans(jaxpr):
        of_body = jax.jit(jaxpr_as_fun(body)).lower(*body.in_avals).cost_analysis()
        once, each = _flops_and_bytes(of_body), cost_with_loops(body, of_body)
        flops += length * each[0] - counted * once[0]
        num_bytes += length * each[1] - counted * once[1]
    return flops, num_bytes


def _flops_and_bytes(analysis: Mapping[str, float] | None) -> tuple[float, float]:
    found = analysis or {}
    return float(found.get("flops", 0.0)), float(found.get("bytes accessed", 0.0))


def _scans(jaxpr: ClosedJaxpr | Jaxpr) -> Iterator[tuple[ClosedJaxpr, int, int]]:
    """Yield body and length of the outermost scans of a jaxpr, and how often the body appears in the program's text."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "scan":
            length, unroll = equation.params["length"], equation.params["unroll"]
            yield equation.params["jaxpr"], length, length if unroll >= length else unroll + length % unroll
            continue
        for inner in _inner(equation):
            yield from _scans(inner)


def is_brief(cost: Cost, mesh: Mesh) -> bool:
    """Return whether a gradient is known to be so short, on a CPU, that measuring it would take longer than sampling saves."""
    is_on_cpu = mesh.devices.flat[0].platform == "cpu"
    return cost.is_counted and is_on_cpu and expected_seconds(cost, mesh) <= LEAST_SECONDS


def expected_seconds(cost: Cost, mesh: Mesh) -> float:
    """Return a rough estimate of the time of one gradient of all chains, from `cost_of_gradient`; it is the same in every run."""
    platform = mesh.devices.flat[0].platform
    operations, num_bytes = RATES.get(platform, RATES["gpu"])
    # Simulated devices share the cores of one host.
    num_devices = 1 if platform == "cpu" else mesh.size
    return max(LEAST_SECONDS, max(cost.flops / operations, cost.bytes / num_bytes) / num_devices)
