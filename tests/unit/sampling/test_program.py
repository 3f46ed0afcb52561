"""The compiled programs of a chain group: draws that do not depend on devices, segments or company."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bayesmesh.config.registry import list_components
from bayesmesh.sampling.program import name_leaves
from levels import levels_case

NUM_WARMUP, NUM_DRAWS = 30, 20
# Steps near the largest stable one would make 1e-16 of rounding 1e-9 in fifty transitions.
OPTIONS: dict[str, dict[str, Any]] = {
    "hmc": {"num_leapfrog_steps": 2, "target_acceptance": 0.9},
    "chees": {"max_leapfrog_steps": 8},
}


SPREAD = {"hmc": ((1, 7), "shard_map")}
"""Kernel -> mesh and way of sharding over several devices, where not the usual: collectives that are stated adapt alike."""


def build_small(build, make_case, kernel: str, mesh: tuple[int, int], **more: Any):
    """Latents that follow the rows, of which 37 are divided by nothing."""
    return build(
        levels_case(make_case), kernel, num_warmup=NUM_WARMUP, mesh=mesh, is_optimised=False, row_tile=5, **OPTIONS.get(kernel, {}), **more
    )  # fmt: skip


@pytest.fixture(scope="module", params=list_components("kernel"))
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


def assert_near(run: Any, reference: Any) -> None:
    assert reference.info.accepted.mean() > 0.3
    for name, draws in reference.draws.items():
        assert run.draws[name].shape == draws.shape
        np.testing.assert_allclose(run.draws[name], draws, rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(run.info.n_steps, reference.info.n_steps)
    np.testing.assert_allclose(run.info.energy, reference.info.energy, rtol=1e-10)
    np.testing.assert_allclose(run.warmup_info.step_size, reference.warmup_info.step_size, rtol=1e-9)


def test_draws_do_not_depend_on_the_number_of_devices(build, make_case, kernel, reference) -> None:
    """From the start on: 50 transitions, of which 30 adapt. More meshes, after warmup: tests/exact/test_devices.py."""
    mesh, sharding = SPREAD.get(kernel, ((4, 2), "named"))
    assert_near(build_small(build, make_case, kernel, mesh, sharding=sharding).run(NUM_DRAWS), reference)


def test_a_run_cut_into_segments_is_bit_for_bit_the_same_run(alone, reference) -> None:
    """Warmup and sampling in pieces of 7, every state taken to the host and back between them."""
    program, compiled = alone.program, alone.compiled

    def through_host(phase: str, state: Any) -> Any:
        leaves = dict(zip(name_leaves(state), map(np.asarray, jax.tree.leaves(state)), strict=True))
        return program.put_state(phase, leaves)

    key = (np.uint32(3), np.uint32(0))
    state, draws, infos = compiled["initialise"](*key, alone.data), [], []
    for phase, wanted in (("warmup", NUM_WARMUP), ("sample", NUM_DRAWS)):
        if phase == "sample":
            state = compiled["finish"](state)
        for start in range(0, wanted, 7):
            count = min(7, wanted - start)
            state, info, *rest = compiled[phase](
                *key, alone.data, through_host(phase, state), np.uint32(start), np.int32(count)
            )
            if phase == "sample":
                infos.append(jax.tree.map(lambda x, n=count: np.asarray(x)[:n], info))
                draws.append(program.bring_draws(rest[0], count))
    assert_same(jax.tree.map(lambda *x: np.concatenate(x), *draws), dict(reference.draws))
    assert_same(jax.tree.map(lambda *x: np.concatenate(x), *infos), reference.info)
    assert_same(jax.tree.leaves(jax.device_get(state)), jax.tree.leaves((reference.state, reference.tuning)))


def test_seed_and_first_chain_decide_the_draws(alone, reference) -> None:
    assert_same(dict(alone.run(NUM_DRAWS).draws), dict(reference.draws))
    for other in (alone.run(NUM_DRAWS, seed=4), alone.run(NUM_DRAWS, first_chain=4)):
        assert (other.draws["centre"] != reference.draws["centre"]).all()


def test_more_draws_extend_the_chains(alone, reference) -> None:
    longer = alone.run(NUM_DRAWS + 6)
    for name, draws in reference.draws.items():
        assert_same(longer.draws[name][:NUM_DRAWS], draws)


def test_a_chain_is_known_by_its_absolute_number(build, make_case) -> None:
    """Without adaptation in common, chain 5 is chain 5 in whichever group it runs."""
    case = make_case("gaussian")
    built = build(case, "hmc", num_warmup=0, is_optimised=False, num_leapfrog_steps=3, initial_step_size=0.2)
    first, second = (built.run(10, first_chain=n).draws["mean"] for n in (0, 2))
    assert_same(first[:, 2:], second[:, :2])
    chains = np.concatenate([first, second[:, 2:]], axis=1)
    assert len(np.unique(chains[-1, :, 0])) == 6


def test_states_lie_where_their_axes_say(make_case, make_program, kernel) -> None:
    program = make_program(make_case("matrix_factorization", width=2), kernel, mesh=(4, 2))
    local = program.target.model.local_latents
    for phase in ("warmup", "sample"):
        shapes = program.state_shapes(phase)
        places = dict(zip(name_leaves(shapes), jax.tree.leaves(program.place_state(shapes)), strict=True))
        leaves = dict(zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True))
        for name, place in places.items():
            latent = name.rpartition(".")[2]
            has_chain = leaves[name].shape == (4, *program.target.position_shapes.get(latent, ()))
            expected = ("chain",) * has_chain + ("data",) * (latent in local)
            assert place.spec == PartitionSpec(*expected), name
        # Positions of every latent, and their gradients, are among them.
        assert sum(".position." in f".{n}" for n in places) == len(program.target.position_shapes)


def test_a_checkpoint_of_another_shape_is_refused(alone) -> None:
    program = alone.program
    shapes = program.state_shapes("sample")
    leaves = {n: np.zeros(s.shape, s.dtype) for n, s in zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True)}
    program.put_state("sample", leaves)
    name = next(n for n in leaves if leaves[n].ndim)
    for wrong in (leaves[name][:1], leaves[name].astype(np.float16)):
        with pytest.raises(ValueError, match=f"checkpoint leaf {name}"):
            program.put_state("sample", {**leaves, name: wrong})


def test_names_of_leaves_are_unique(alone) -> None:
    for phase in ("warmup", "sample"):
        names = name_leaves(alone.program.state_shapes(phase))
        assert len(set(names)) == len(names)
