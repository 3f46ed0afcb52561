"""What is in the programs: equations, collectives, precision; how often a model is traced."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import POSITION, Axes
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.sampling.density.costs import cost_of_gradient
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.program.audit import check_growth, count_equations, growth_of_equations, memory_of
from bayesmesh.sampling.program.chain_group import PROGRAMS, place
from kernel_options import kernels_of_any_target
from levels import groups_case


@pytest.fixture(scope="module", params=list_components("model"))
def case(request, make_case):
    return make_case(request.param)


class LoopsOverRows(Gaussian):
    """As one writes it at first: a Python loop over rows."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return jnp.stack([self._noise(latents["mean"]).log_prob(x) for x in rows["x"]])


def test_equations_do_not_grow_with_the_data(case) -> None:
    counts = growth_of_equations(case.model_class, case.options, case.spec)
    assert list(counts) == ["16", "32"]
    assert check_growth(counts, 10**9, case.name) == ""
    assert len(set(counts.values())) == 1
    assert min(counts.values()) > 10


def test_a_loop_over_rows_is_seen(make_case) -> None:
    case = make_case("gaussian")
    counts = growth_of_equations(LoopsOverRows, case.options, case.spec)
    assert counts["32"] > counts["16"] + 16
    warning = check_growth(counts, 50, "mine")
    assert "model 'mine': its program grows with its data" in warning
    assert "replace the Python loop over rows" in warning
    with pytest.raises(ConfigError, match="compiling them would not end") as caught:
        check_growth(counts, 60_000, "mine")
    assert "jnp.sum, jax.vmap, or jax.lax.scan" in caught.value.remedy


def test_equations_inside_loops_and_branches_are_counted_once() -> None:
    def function(x: jax.Array) -> jax.Array:
        x = jax.lax.fori_loop(0, 1000, lambda _, y: jnp.sin(y) + 1, x)
        return jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)

    jaxpr = jax.make_jaxpr(function)(1.0)
    inside = jax.make_jaxpr(lambda y: jnp.sin(y) + 1)(1.0)
    assert count_equations(inside) == 2
    # The loop with its counter, the branch with its index, and what they hold.
    assert 6 <= count_equations(jaxpr) <= 12


def resized(case, num_rows: int):
    """The case with its rows repeated; groups have one row each, as in the cases."""
    rows = {k: np.resize(v, (num_rows, *v.shape[1:])) for k, v in case.rows.items()}
    counts = (1,) * num_rows if case.spec.entry_counts else ()
    return dataclasses.replace(
        case, rows=rows, spec=dataclasses.replace(case.spec, num_rows=num_rows, entry_counts=counts)
    )


def of_chains(target, num_chains: int) -> Any:
    """The abstract position of some chains."""
    shapes = target.position.position_shapes
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct((num_chains, *s.shape), s.dtype), shapes)


def log_density(target) -> Any:
    return lambda position, data: target.bind(data).log_density(position)


def gradient_text(case, make_program, mesh: tuple[int, int], num_rows: int, sharding: str) -> str:
    """The compiled density of a mesh, as text."""
    program = make_program(resized(case, num_rows), "chees", mesh=mesh, row_tile=5, sharding=sharding)
    shapes = of_chains(program.target, 4)
    placed = place(program.mesh, shapes, POSITION)
    jitted = jax.jit(log_density(program.target), in_shardings=(placed, program.data_shardings))
    return jitted.lower(shapes, program.target.data_shapes()).compile().as_text()


SHARDING = ["named", "shard_map"]


@pytest.mark.parametrize(("mesh", "sharding"), [((2, 2), "named"), ((1, 4), "shard_map")])
def test_the_likelihood_gathers_nothing(case, make_program, mesh, sharding) -> None:
    """Devices add up, once; they never collect each other's rows."""
    text = gradient_text(case, make_program, mesh, 40, sharding)
    assert not re.findall(r"all-gather|all-to-all|collective-permute", text)
    assert len(re.findall(r"all-reduce(?:-start)?\(", text)) == 1


@pytest.mark.parametrize("sharding", SHARDING)
def test_entries_of_groups_are_not_gathered_either(make_case, make_program, sharding) -> None:
    """Rows take the entries of their group where both lie."""
    program = make_program(groups_case(make_case), "chees", mesh=(2, 4), row_tile=5, sharding=sharding)
    target = program.target
    jitted = jax.jit(
        lambda latents, data: target.likelihood_and_gradient(latents, data),
        in_shardings=(
            {k: sharding_of(program, k) for k in target.position.shapes}, program.data_shardings,
        ),
    )  # fmt: skip
    _, latents = jax.eval_shape(jax.vmap(target.prior_and_latents), of_chains(target, 4))
    text = jitted.lower(latents, target.data_shapes()).compile().as_text()
    assert not re.findall(r"all-gather|all-to-all|collective-permute", text)
    assert len(re.findall(r"all-reduce(?:-start)?\(", text)) == 1


def sharding_of(program, name: str) -> Any:
    """How a latent of all chains lies: (chain, entry, ...), or (chain, ...)."""
    axes = Axes("chain", "entry") if name in program.target.model.local_latents else Axes("chain")
    return place(program.mesh, jax.ShapeDtypeStruct((4, 16), jnp.float64), axes)


@pytest.mark.parametrize("sharding", SHARDING)
def test_no_device_holds_an_array_of_all_rows(make_case, make_program, sharding) -> None:
    """Momenta, moments and scales of local latents are made where their rows lie, also with rows that do not divide."""
    case = resized(make_case("matrix_factorization", width=2), 211)
    # Directions of `low_rank` need the points of all rows, of at most 20,000 coordinates.
    options = {"metric": "diagonal"}
    program = make_program(case, "chees", mesh=(1, 4), row_tile=500, kernel_options=options, sharding=sharding)
    text = program.trace("segment").lower().compile().as_text()
    sizes = {int(n) for shape in re.findall(r"\w\d+\[([\d,]+)\]", text) for n in shape.split(",")}
    assert program.target.layout.shape == (4, 1, 53)
    assert 53 in sizes
    assert not {211, 212} & sizes


def arrays(jaxpr: Any) -> Iterator[Any]:
    """Abstract values of all outputs of all equations."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield from (v.aval for v in equation.outvars)
        for value in equation.params.values():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from arrays(item)


def is_wide_throughout(case) -> bool:
    """Whether a model computes in float64 whatever the dtype: PyTensor's graphs do, as the guide says."""
    return case.name == "pymc"


def test_a_float32_likelihood_computes_in_float32(case) -> None:
    """Float64 is for sums: of rows, and of the prior's terms, which are as many as the latents."""
    case = case.with_dtype("float32")
    latents = jax.eval_shape(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
    is_row = jnp.ones(case.spec.num_rows, bool)
    jaxpr = jax.make_jaxpr(case.model.log_likelihood_and_gradient)(latents, case.arrays, is_row)
    wide = [a.shape for a in arrays(jaxpr) if getattr(a, "dtype", None) == jnp.float64]
    assert (max(map(math.prod, wide), default=0) <= case.spec.num_rows) != is_wide_throughout(case), wide


def test_a_float32_density_has_nothing_wide_beyond_the_latents(case, make_target) -> None:
    target = make_target(case.with_dtype("float32"), 2, 5)
    shapes = of_chains(target, 2)
    jaxpr = jax.make_jaxpr(log_density(target))(shapes, target.data_shapes())
    # A position holds all shared coordinates in one array.
    coordinates = max(math.prod(s.shape) for s in jax.tree.leaves(target.position.position_shapes))
    # The prior of a NumPyro function is found with two rows without meaning, in its own dtype; nothing else reads them.
    of_rows = max(math.prod(field.shape) for field in case.spec.fields.values()) if case.name == "numpyro" else 0
    largest = 2 * max(math.prod(target.layout.shape), coordinates, of_rows)
    wide = [a.shape for a in arrays(jaxpr) if getattr(a, "dtype", None) == jnp.float64]
    assert (max(map(math.prod, wide), default=0) <= largest) != is_wide_throughout(case), wide


def test_a_float64_intermediate_would_be_seen(make_case) -> None:
    class Careless(Gaussian):
        def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
            wide = rows["x"].astype(jnp.float64) - latents["mean"]
            return -0.5 * jnp.sum(wide**2, axis=1).astype(latents["mean"].dtype)

    case = dataclasses.replace(make_case("gaussian", "float32"), model_class=Careless)
    with pytest.raises(AssertionError):
        test_a_float32_likelihood_computes_in_float32(case)


MOST_TRACES = {"initialise": 1, "segment": 2}
"""A kernel may ask for the density at two places of a step."""

MORE_TRACES = {"unit_hmc": 1}
"""Values at both ends of a trajectory and at the next group's start, gradients between them."""


@pytest.mark.parametrize("kernel", kernels_of_any_target())
def test_a_model_is_traced_a_few_times_for_all_programs(make_case, make_program, kernel) -> None:
    calls = []

    class Counted(Gaussian):
        def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
            calls.append(None)
            return super().log_likelihood(latents, rows)

    case = dataclasses.replace(make_case("gaussian"), model_class=Counted)
    program = make_program(case, kernel, row_tile=5)
    for name in PROGRAMS:
        calls.clear()
        program.trace(name)
        # The shapes of the state and of buffers come from the traces of the programs.
        assert 0 < len(calls) <= MOST_TRACES[name] + MORE_TRACES.get(kernel, 0), name


def test_a_compiled_program_is_not_traced_again(make_case, build) -> None:
    calls = []

    class Counted(Gaussian):
        def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
            calls.append(None)
            return super().log_likelihood(latents, rows)

    built = build(
        dataclasses.replace(make_case("gaussian"), model_class=Counted), "hmc", num_warmup=4, is_optimised=False
    )
    calls.clear()
    built.run(9, segment=2)
    built.run(5, first_chain=4)
    assert not calls


def test_costs_are_in_proportion_to_chains(case, make_target) -> None:
    target = make_target(case, 2, 5)
    one, eight = (cost_of_gradient(target, n) for n in (1, 8))
    assert one.flops > case.spec.num_rows
    assert 4 < eight.flops / one.flops < 12
    assert one.bytes > 0


def test_memory_is_bounded_by_a_tile(make_case, make_target) -> None:
    """Ten times the rows at the same tile need no more temporaries; the data themselves are arguments."""
    case = make_case("softmax_regression")

    def temporaries(num_rows: int, row_tile: int) -> int:
        from bayesmesh.sampling.density.log_density import Target

        spec = dataclasses.replace(case.spec, num_rows=num_rows)
        target = Target(case.model_class(case.options, spec), spec, lay_out_rows(num_rows, 1, row_tile))
        lowered = jax.jit(log_density(target)).lower(of_chains(target, 4), target.data_shapes())
        return memory_of(lowered.compile())["temporaries"]

    few, many, untiled = temporaries(2_000, 100), temporaries(20_000, 100), temporaries(20_000, 20_000)
    assert many < 1.5 * few
    assert untiled > 4 * many
