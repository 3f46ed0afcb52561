"""The compiled programs of a chain group: draws that do not depend on devices, segments or company."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.config.registry import load_component
from bayesmesh.kernels.base import Axes
from bayesmesh.sampling.program.values import ChainState, name_leaves, place
from kernel_options import kernels_of_any_target
from levels import groups_case, levels_case
from programs import checkpoint

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 30, 20
# Steps near the largest stable one would make 1e-16 of rounding 1e-9 in fifty transitions.
OPTIONS: dict[str, dict[str, Any]] = {
    "hmc": {"num_leapfrog_steps": 2, "target_acceptance": 0.9},
    # Directions learnt from few points magnify the rounding that differs between meshes.
    "chees": {"max_leapfrog_steps": 8, "target_acceptance": 0.9, "metric": "diagonal"},
    "mams": {"max_leapfrog_steps": 8, "metric": "diagonal"},
    "nuts": {"max_tree_depth": 4, "metric": "diagonal"},
    "tempered_smc": {"max_leapfrog_steps": 8},
    "replica_exchange": {"num_leapfrog_steps": 2, "target_acceptance": 0.9},
}

GROUPED = ("random_walk", "replica_exchange")
"""Kernels that are run with one entry a group of rows; the others have one entry a row."""

SPREAD = {"hmc": ((1, 7), "shard_map"), "random_walk": ((1, 4), "shard_map"), "replica_exchange": ((2, 2), "named")}
"""Kernel -> mesh and way of sharding over several devices, where not the usual: collectives that are stated adapt alike."""

ALIKE = ("hmc", "mala", "random_walk", "tempered_smc")
"""Kernels whose adaptation, exchange of chains and trajectories another kernel has too."""


def build_small(build, make_case, kernel: str, mesh: tuple[int, int], **more: Any):
    """Local latents, whose 37 rows or 8 groups leave room behind them on most meshes."""
    case = (groups_case if kernel in GROUPED else levels_case)(make_case)
    options = {"num_warmup": NUM_WARMUP, **OPTIONS.get(kernel, {}), **more}
    return build(case, kernel, mesh=mesh, is_optimised=False, row_tile=5, **options)


@pytest.fixture(scope="module", params=kernels_of_any_target())
def kernel(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def alone(build, make_case, kernel):
    """On one device."""
    return build_small(build, make_case, kernel, (1, 1))


@pytest.fixture(scope="module")
def reference(alone):
    return alone.run(NUM_DRAWS)


def assert_same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def moves(run: Any) -> np.ndarray:
    """Return which transitions moved a chain, (draw, chain) bool: accepted ones, or all of a kernel that rejects none."""
    return run.statistics.get("accepted", np.diff(run.draws["centre"], axis=0) != 0)


def assert_near(run: Any, reference: Any, largest: float = 1e-10) -> None:
    assert moves(reference).mean() > 0.1
    for name, draws in reference.draws.items():
        assert run.draws[name].shape == draws.shape
        np.testing.assert_allclose(run.draws[name], draws, rtol=0, atol=largest, err_msg=name)
    for found, expected in (
        (run.statistics, reference.statistics),
        (run.warmup_statistics, reference.warmup_statistics),
    ):
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[name], values, rtol=10 * largest, atol=10 * largest, err_msg=name)
            else:
                np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=pytest.mark.verify) if name in ALIKE else name for name in kernels_of_any_target()],
    indirect=True,
)
def test_draws_do_not_depend_on_the_number_of_devices(build, make_case, kernel, reference) -> None:
    """From the start on: 50 transitions, of which 30 adapt. More meshes, after warmup: tests/exact/test_devices.py."""
    mesh, sharding = SPREAD.get(kernel, ((4, 2), "named"))
    # The scale of units has the eigenvectors of a matrix, which multiply rounding errors.
    largest = 1e-7 if kernel == "unit_hmc" else 1e-10
    assert_near(build_small(build, make_case, kernel, mesh, sharding=sharding).run(NUM_DRAWS), reference, largest)


def test_draws_and_statistics_have_the_shapes_that_are_declared(alone, reference) -> None:
    program = alone.program
    reported = program.num_reported
    for name, shape in program.target.position.shapes.items():
        assert reference.draws[name].shape == (NUM_DRAWS, reported, *shape)
    assert set(reference.statistics) == set(program.kernel.statistics)
    for found, count in ((reference.statistics, NUM_DRAWS), (reference.warmup_statistics, NUM_WARMUP)):
        assert {v.shape for v in found.values()} <= {(count,), (count, reported)}
        assert found["lp"].shape == found["log_likelihood"].shape == (count, reported)
    # The statistics are those of the draws: the last draw is where the chains are.
    state = reference.state.kernel
    np.testing.assert_array_equal(reference.statistics["log_likelihood"][-1], state.log_likelihood[:reported])


def test_a_run_cut_into_segments_is_bit_for_bit_the_same_run(alone, reference) -> None:
    """Warmup and draws in pieces of 7, every state taken to the host and back between them."""
    cut = alone.run(NUM_DRAWS, segment=7, is_through_host=True)
    for name in ("warmup_state", "warmup_statistics", "state", "statistics", "draws"):
        assert_same(getattr(cut, name), getattr(reference, name))


def test_one_call_may_make_warmup_and_draws(alone, reference) -> None:
    """Iterations are counted from the first of warmup: a slice across its end is two slices in one."""
    arguments = alone.arguments()
    state, _ = alone.compiled["initialise"](arguments, alone.data)
    state, statistics, draws = alone.go(arguments, state, 0, NUM_WARMUP + NUM_DRAWS, 32)
    assert_same(jax.device_get(state), reference.state)
    assert_same({k: v[NUM_WARMUP:] for k, v in draws.items()}, reference.draws)
    for name, values in statistics.items():
        both = np.concatenate([reference.warmup_statistics[name], reference.statistics[name]])
        np.testing.assert_array_equal(values, both, err_msg=name)


def test_what_was_learnt_stays_after_warmup(alone, reference) -> None:
    assert_same(reference.state.adaptation, reference.warmup_state.adaptation)
    if "step_size" in alone.program.kernel.statistics:
        step_size = reference.statistics["step_size"]
        assert (step_size == step_size[0]).all()
        if jax.tree.leaves(reference.state.adaptation):
            assert len(np.unique(reference.warmup_statistics["step_size"])) > NUM_WARMUP // 2


def test_seed_and_first_chain_decide_the_draws(alone, reference) -> None:
    assert_same(alone.run(NUM_DRAWS).draws, reference.draws)
    for other in (alone.run(NUM_DRAWS, seed=4), alone.run(NUM_DRAWS, first_chain=4)):
        moved = moves(other).any(axis=0) & moves(reference).any(axis=0)
        assert moved.any()
        assert (other.draws["centre"][-1] != reference.draws["centre"][-1])[moved].all()


def test_more_draws_extend_the_chains(alone, reference) -> None:
    longer = alone.run(NUM_DRAWS + 6)
    for name, draws in reference.draws.items():
        assert_same(longer.draws[name][:NUM_DRAWS], draws)


@pytest.mark.parametrize(
    ("num_rows", "method", "level"), [(40, "auto", 0), (40, "mode", None), (10**7, "auto", None), (10**7, "mode", None)]
)
def test_a_start_of_few_short_gradients_is_not_optimised(make_case, make_program, num_rows, method, level) -> None:
    case = make_case("gaussian")
    many = dataclasses.replace(case, spec=dataclasses.replace(case.spec, num_rows=num_rows))
    program = make_program(many, "hmc", initial={"method": method})
    expected = None if level is None else {"xla_backend_optimization_level": level}
    assert program.compiler_options("initialise") == expected
    assert program.compiler_options("segment") is None


def test_a_chain_is_known_by_its_absolute_number(build, make_case) -> None:
    """Without adaptation in common, chain 5 is chain 5 in whichever group it runs."""
    built = build_small(build, make_case, "hmc", (1, 1), num_warmup=0, initial_step_size=0.2)
    first, second = (built.run(10, first_chain=n).draws["levels"] for n in (0, 2))
    assert_same(first[:, 2:], second[:, :2])
    chains = np.concatenate([first, second[:, 2:]], axis=1)
    assert len(np.unique(chains[-1, :, 0, 0])) == 6


def spec_of(sharding: Any) -> tuple[str | None, ...]:
    """Axes of a sharding, without those behind the last that is spread."""
    return trimmed(sharding.spec)


def trimmed(axes: Sequence[str | None]) -> tuple[str | None, ...]:
    """Axes without those behind the last that is spread."""
    return tuple(axes[: max((i + 1 for i, name in enumerate(axes) if name is not None), default=0)])


def mesh_axis(declared: str | None, length: int) -> str | None:
    """The axis of a mesh with two devices for data over which a declared axis is spread."""
    return {"chain": "chain", "entry": "data", "spread": None if length % 2 else "data"}[declared] if declared else None


def test_states_lie_where_their_axes_say(make_case, make_program, kernel) -> None:
    """Chains over `chain`, entries over `data`; what all chains share is everywhere."""
    case = make_case("matrix_factorization", width=2)
    program = make_program(case, kernel, mesh=(4, 2))
    shapes = program.state_shapes
    leaves = dict(zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True))
    places = dict(zip(name_leaves(shapes), jax.tree.leaves(program.state_shardings), strict=True))
    axes = ChainState(program.kernel.state_axes(), program.kernel.adaptation_axes())
    declared = dict(zip(leaves, jax.tree.leaves(jax.tree.broadcast(axes, shapes)), strict=True))
    position = program.target.position.position_shapes
    kept = [part for part in ("position", "gradient") if hasattr(shapes.kernel, part)]
    assert {f"kernel.{part}.{each}" for part in kept for each in position._fields} <= set(leaves)
    for name, place_ in places.items():
        shape, part = leaves[name].shape, name.rpartition(".")[2]
        one_chain = getattr(position, part).shape if part in ("shared", "local") else ()
        lead = len(shape) - len(one_chain)
        if shape in ((NUM_CHAINS,) * lead + one_chain, one_chain):
            expected = ("chain",) * lead + ("data",) * (part == "local")
        else:
            # Such as directions of a metric, or a step size for each group of units.
            assert name.split(".")[1] not in kept, name
            expected = trimmed([mesh_axis(*each) for each in zip(declared[name].names, shape, strict=False)])
        assert spec_of(place_) == expected, name


def test_draws_and_data_lie_where_their_axes_say(make_case, make_program) -> None:
    program = make_program(groups_case(make_case), "hmc", mesh=(2, 4), row_tile=5)
    # Draws are (iteration, chain, ...): entries of `levels` are their first axis, those of `scales` the second.
    assert {k: spec_of(v) for k, v in program.draw_shardings.items()} == {
        "centre": (), "levels": (None, None, "data"), "scales": (None, None, None, "data"),
    }  # fmt: skip
    assert set(program.data_shardings) == {"x", "is_row", "entry_of_row"}
    assert {spec_of(v) for v in program.data_shardings.values()} == {("data",)}
    assert program.rows_here == (0, 37)


def test_what_all_share_is_spread_where_devices_divide_it(make_case, make_program) -> None:
    mesh = make_program(make_case("gaussian"), "random_walk", mesh=(4, 2)).mesh
    shapes = tuple(jax.ShapeDtypeStruct((3, length), "float32") for length in (4, 5))
    assert [spec_of(at) for at in place(mesh, shapes, (Axes(None, "spread"),) * 2)] == [(None, "data"), ()]


def test_leaves_of_a_checkpoint_come_back(alone, reference) -> None:
    leaves = checkpoint(reference.state)
    there = alone.program.state_to_device(leaves)
    assert_same(jax.device_get(there), reference.state)
    assert_same(checkpoint(there), leaves)
    assert jax.tree.map(lambda x: x.sharding, there) == alone.program.state_shardings


def test_a_checkpoint_of_another_shape_is_refused(alone) -> None:
    program = alone.program
    shapes = program.state_shapes
    leaves = {n: np.zeros(s.shape, s.dtype) for n, s in zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True)}
    program.state_to_device(leaves)
    name = next(n for n in leaves if leaves[n].ndim)
    for wrong in (leaves[name][:1], leaves[name].astype(np.float16)):
        with pytest.raises(ValueError, match=f"checkpoint leaf {name}"):
            program.state_to_device({**leaves, name: wrong})


def test_chains_on_two_devices_make_the_draws_of_one(build, make_case, make_program, kernel, reference) -> None:
    """With all rows on every device, each steps its chains alone where the kernel allows it."""
    if not load_component("kernel", kernel).steps_alone:
        # The draws of several devices are compared above.
        assert not make_program(groups_case(make_case), kernel, mesh=(2, 1)).steps_alone
        return
    spread = build_small(build, make_case, kernel, (2, 1))
    assert spread.program.steps_alone
    assert_near(spread.run(NUM_DRAWS), reference)
