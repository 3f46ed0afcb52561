"""Measure the cost of a program before it runs: equations, FLOPs, bytes, memory, seconds per gradient."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.kernels.base import Position, map_parts
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.model import Shapes
from bayesmesh.sampling.density.costs import equations_of, of_chains
from bayesmesh.sampling.density.log_density import Arrays, Target, row_shapes
from bayesmesh.sampling.density.mesh import part_shape, sharding, to_device
from bayesmesh.sampling.density.peers import Peers
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.sizes import Lengths
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.records.checked import read_checked

MOST_EQUATIONS = 20_000
"""Most equations of a program that is compiled at all, if their number grows with the data; 1,600 take seconds, and time grows faster."""


def count_equations(jaxpr: ClosedJaxpr) -> int:
    """Return the number of equations of a jaxpr, including nested ones; the body of a loop counts once."""
    return sum(1 for _ in equations_of(jaxpr))


def may_grow(model_class: type[Model], options: Settings, spec: DataSpec, latents: Shapes) -> bool:
    """Return whether the log prior or the log likelihood has more equations for more rows.

    Takes a tenth of the time of `growth_of_equations`. If neither has more, the number of equations of the gradient does not
    depend on the number of rows.

    Args:
        model_class, options: the model and its options.
        spec: its data.
        latents: latent -> shape and dtype of one draw.
    """
    if model_class.reads_whole(options):
        # The model may have as many latents as rows.
        return True
    counts = set()
    for num_rows in (16, 32):
        model = model_class(options, small := dataclasses.replace(spec, num_rows=num_rows, entry_counts=()))
        rows = row_shapes(spec, num_rows)
        aligned = resize_local(latents, model.local_latents, num_rows)
        is_row = jax.ShapeDtypeStruct((num_rows,), np.bool_)
        parts = [
            jax.make_jaxpr(model.prior(small).log_prob)(aligned),
            jax.make_jaxpr(model.log_likelihood)(aligned, rows),
        ]
        if model_class.has_fast_path():
            parts.append(jax.make_jaxpr(model.log_likelihood_and_gradient)(aligned, rows, is_row))
        counts.add(tuple(map(count_equations, parts)))
    return len(counts) > 1


def growth_of_equations(model_class: type[Model], options: Settings, spec: DataSpec) -> dict[str, int]:
    """Count the equations of the log density's gradient at two data sizes.

    A model that loops over its data in Python has more equations for more rows, and compiles ever more slowly.

    Returns:
        number of rows, as a string -> number of equations.
    """
    counts = {}
    for num_rows in (16, 32):
        small = dataclasses.replace(spec, num_rows=num_rows, entry_counts=())
        target = Target(model_class(options, small), small, lay_out_rows(num_rows, 1, num_rows))
        position = of_chains(target, 2)
        jaxpr = jax.make_jaxpr(lambda q, d, target=target: target.bind(d).log_density(q))(
            position, target.data_shapes()
        )
        counts[str(num_rows)] = count_equations(jaxpr)
    return counts


def check_growth(equations: Mapping[str, int], num_rows: int, model: str) -> str:
    """Return a warning about a model whose program grows with its data, else an empty string.

    Args:
        equations: result of `growth_of_equations`.
        num_rows: rows that one program computes at a time.
        model: name of the model.

    Raises:
        ConfigError: it would have more than `MOST_EQUATIONS` at that many rows, and take too long to compile.

    >>> check_growth({"16": 40, "32": 40}, 60_000, "softmax_regression")
    ''
    """
    (few, at_few), (many, at_many) = ((int(rows), count) for rows, count in equations.items())
    slope = (at_many - at_few) / (many - few)
    if not slope:
        return ""
    expected = round(at_many + slope * max(num_rows - many, 0))
    said = (
        f"model '{model}': its program grows with its data: {at_few:,} equations for {few} rows, {at_many:,} for {many},"
        f" so some {expected:,} for {num_rows:,}"
    )
    if expected > MOST_EQUATIONS:
        raise ConfigError(f"{said}; compiling them would not end", _GROWTH_REMEDY)
    return f"{said}; compile time grows faster than that; {_GROWTH_REMEDY}"


_GROWTH_REMEDY = (
    "replace the Python loop over rows, or Python's sum over an array, by operations on whole arrays: jnp.sum, jax.vmap,"
    " or jax.lax.scan where one row needs the one before"
)

SHORT_SECONDS = 0.005
"""Seconds below which a gradient is measured in a loop."""


def memory_of(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Return the bytes per device that a compiled program needs, according to XLA."""
    analysis = compiled.memory_analysis()
    assert analysis is not None  # available on every platform
    parts = {
        "arguments": analysis.argument_size_in_bytes, "outputs": analysis.output_size_in_bytes,
        "temporaries": analysis.temp_size_in_bytes, "code": analysis.generated_code_size_in_bytes,
    }  # fmt: skip
    return {**parts, "peak": parts["arguments"] + parts["outputs"] + parts["temporaries"]}


def trace_gradients(program: Program) -> jax.stages.Traced:
    """Trace the program that `seconds_per_gradient` runs: its arguments are the model's numeric options, positions, data and the
    number of gradients, which it takes one after another."""

    def run_all(options: Arrays, position: Position, data: Arrays, count: jax.Array) -> Position:
        target = program.target.with_options(options)

        # A negligible step makes each gradient depend on the previous one.
        def step(_: jax.Array, q: Position) -> Position:
            gradient = target.bind(data).log_density(q).gradient
            return map_parts(lambda x, g: x + (1e-20 * g).astype(x.dtype), q, gradient)

        return jax.lax.fori_loop(0, count, step, position)

    everywhere, placed = sharding(program.mesh), program.position_shardings
    at = (everywhere, placed, program.data_shardings, everywhere)
    of_all = program.spread(run_all, (False, True, True, False)) if isinstance(program, DatasetPrograms) else run_all
    jitted = jax.jit(of_all, in_shardings=at, out_shardings=placed)
    options = {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in _options(program).items()}
    return jitted.trace(options, program.position_shapes, program.data_shapes, jax.ShapeDtypeStruct((), np.int32))


def _options(program: Program) -> dict[str, np.ndarray]:
    """Return the numeric options of the model, which are arguments of all programs."""
    options: dict[str, np.ndarray] = program.arguments(GroupKey(0, 0)).model
    return options


def seconds_per_gradient(
    program: Program, run: Callable[..., object], data: Mapping[str, jax.Array], peers: Peers
) -> float:
    """Measure one gradient of all chains near the origin: the best of three runs after a first one.

    If it takes less than `SHORT_SECONDS`, most of which is call overhead, it is measured again in a loop, as in a sampler.
    With several processes the slowest time counts, so that all run the same programs.

    Args:
        program: programs of the chain group.
        run: the compiled program of `trace_gradients`.
        data: rows on the devices.
        peers: the other processes.
    """
    position = jax.tree.map(
        lambda s, at: to_device(np.zeros(part_shape(at, s.shape), s.dtype), at, s.shape),
        program.position_shapes,
        program.position_shardings,
    )

    def best_of_three(count: int) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            jax.block_until_ready(run(_options(program), position, data, np.int32(count)))
            times.append(time.perf_counter() - start)
        return min(times[1:]) / count

    seconds = max(peers.exchange(best_of_three(1)))
    return float(max(peers.exchange(best_of_three(100))) if seconds < SHORT_SECONDS else seconds)


def read_lengths(path: Path) -> Lengths:
    """Return the lengths that the compile stage chose, from its ``audit.json``.

    Raises:
        StoreError: the file is missing or damaged, or a length is not in it.
    """
    remedy = "delete it and run the compile stage again"
    audit = read_checked(path, remedy)
    for name in Lengths._fields:
        if type(audit.get(name)) is not int or audit[name] < 1:
            raise StoreError(f"{path}: is damaged: no {name} in it", remedy)
    return Lengths(*(audit[name] for name in Lengths._fields))
