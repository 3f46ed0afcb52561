"""Chains of many datasets in one program are those that each dataset has alone, whatever the others, blocks and cuts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bayesmesh.models.gaussian import Gaussian
from bayesmesh.sampling.density.costs import equations_of
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.program.compilation import compile_programs
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.starts import NoFiniteStart, choose_starts
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger

COUNTS = (4, 9, 6)
SEED, CHAINS, WARMUP, DRAWS, SLICE, SEGMENT = 3, 2, 12, 22, 4, 16
FIRST = np.cumsum([0, *COUNTS])


class Capped(Gaussian):
    """Rows have density zero above a limit."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return jnp.where(rows["x"][:, 0] > 1e3, -jnp.inf, super().log_likelihood(latents, rows))


@pytest.fixture(scope="module")
def case(make_case: Callable[..., Any]) -> Any:
    made = make_case("gaussian", num_rows=max(COUNTS), dtype="float64")
    return dataclasses.replace(made, model_class=Capped)


@pytest.fixture(scope="module")
def rows(case: Any) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    shape = (sum(COUNTS), *case.rows["x"].shape[1:])
    return {"x": generator.normal(size=shape) + np.repeat(np.arange(3), COUNTS)[:, None]}


def one(case: Any, make_program: Callable[..., Any], num_rows: int) -> Any:
    """Return the programs of one dataset of so many rows."""
    of_length = dataclasses.replace(case, spec=dataclasses.replace(case.spec, num_rows=num_rows))
    return make_program(of_length, "hmc", CHAINS, WARMUP, SLICE, row_tile=5, kernel_options={"num_leapfrog_steps": 2})


@pytest.fixture(scope="module")
def programs(case: Any, make_program: Callable[..., Any]) -> DatasetPrograms:
    """On two devices, of which each has two slots for one of three datasets, one after the other."""
    axes = (CHAIN_AXIS, DATA_AXIS), (AxisType.Auto,) * 2
    mesh = jax.make_mesh((2, 1), axes[0], axis_types=axes[1], devices=jax.devices()[:2])
    return DatasetPrograms(one(case, make_program, max(COUNTS)), COUNTS, mesh, block=1)


@pytest.fixture(scope="module")
def compiled(programs: DatasetPrograms, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = compile_programs(programs, Ledger(tmp_path_factory.mktemp("ledger") / "ledger", "test"))
    return {name: each.compiled for name, each in made.items()}


@pytest.fixture
def run(programs: DatasetPrograms, compiled: Any, tmp_path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Return a function of rows and of numbers of draws, one for each attempt, that samples into a store."""

    def run(rows: Any, name: str, *attempts: int) -> dict[str, np.ndarray]:
        store = ChainStore(tmp_path / name, SEGMENT, {"identity": "one"})
        for num_draws in attempts:
            with Interruption(0) as interruption:
                loop = Loop(
                    programs, compiled, GroupKey(SEED, 0), programs.put_data(rows), store,
                    Ledger(tmp_path / "ledger", "test"), interruption, label=name, facts={},
                )  # fmt: skip
                loop.run(num_draws, store.begin_writing())
        root = open_group(tmp_path / name / "draws.zarr")
        return {f"{group}/{n}": np.asarray(a[...]) for group, part in root.groups() for n, a in part.arrays()}

    return run


def test_each_dataset_has_the_draws_that_it_has_alone(
    case: Any, make_program: Any, programs: DatasetPrograms, rows: Any, run: Any
) -> None:
    """Padded to the longest, on another device, after another block: up to the rounding of a sum of rows."""
    assert (programs.num_slots, programs.block, programs.num_reported) == (4, 1, 3 * CHAINS)
    found = run(rows, "together", DRAWS)
    assert found["posterior/mean"].shape[:3] == (CHAINS, DRAWS, 3)
    for number, count in enumerate(COUNTS):
        own = {"x": rows["x"][FIRST[number] : FIRST[number + 1]]}
        alone = DatasetPrograms(one(case, make_program, count), [count])
        expected = alone.run(alone.arguments(GroupKey(SEED, number * CHAINS)), alone.put_data(own), DRAWS)
        for name, values in {**expected.latents, **expected.statistics}.items():
            group = "posterior" if name in expected.latents else "sample_stats"
            stored = np.swapaxes(found[f"{group}/{name}"][:, :, number], 0, 1)
            shared = values[0] if values.ndim > 2 else values[0][:, None]
            np.testing.assert_allclose(
                stored, np.broadcast_to(shared, stored.shape), rtol=1e-9, atol=1e-9, err_msg=name
            )
    assert len(np.unique(found["sample_stats/step_size"][0, -1])) == 3


def test_a_run_that_is_cut_gives_the_same_bits(rows: Any, run: Any, tmp_path: Path) -> None:
    whole, pieces = run(rows, "whole", DRAWS), run(rows, "pieces", 5, 17, DRAWS)
    assert whole.keys() == pieces.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(pieces[name], values, err_msg=name)
    commits = [ChainStore(tmp_path / name, SEGMENT, {"identity": "one"}).commits() for name in ("whole", "pieces")]
    gradients = [sum(f["gradients"] for c in each for f in c.all_facts) for each in commits]
    assert gradients == [(WARMUP + DRAWS) * 2 * CHAINS * 3] * 2, "counted once for each chain"


def test_a_dataset_without_a_finite_start_ends_no_other(
    rows: Any, run: Any, caplog: pytest.LogCaptureFixture, programs: DatasetPrograms
) -> None:
    lost = {"x": rows["x"].copy()}
    lost["x"][FIRST[1]] = 1e4
    found, whole = run(lost, "lost", DRAWS), run(rows, "whole", DRAWS)
    assert "1 of 3 datasets have no finite start" in caplog.text
    assert not np.isfinite(found["sample_stats/lp"][:, :, 1]).any()
    for name, values in whole.items():
        np.testing.assert_array_equal(found[name][:, :, [0, 2]], values[:, :, [0, 2]], err_msg=name)
    with pytest.raises(NoFiniteStart) as raised:
        run({"x": np.full_like(rows["x"], 1e4)}, "all", DRAWS)
    assert raised.value.chains == list(range(3 * CHAINS))


def test_starts_are_compared_within_a_dataset() -> None:
    lp = np.array([[[-1e9, -3.0], [-70.0, -90.0]], [[-4.0, -2.0], [-80.0, -60.0]]])
    first = np.array([3, 8], np.uint32)
    expected = [choose_starts(lp[:, dataset], first[dataset]) for dataset in range(2)]
    np.testing.assert_array_equal(choose_starts(lp, first), expected)
    assert expected[0].tolist() == [1, 0]


@pytest.mark.parametrize("kernel", ["hmc", "nuts", "chees"])
def test_what_happens_at_the_end_of_a_window_is_left_out_elsewhere(case, make_program, kernel: str) -> None:
    """Conditions on the iteration stay conditions; mapped over a number of each dataset, both branches would be computed."""
    program = make_program(case, kernel, CHAINS, 40, SLICE, row_tile=5, kernel_options={"metric": "diagonal"})
    programs = DatasetPrograms(program, [case.spec.num_rows] * 3)

    def count_conditions(programs: Any) -> int:
        given = programs._abstract_arguments, programs.data_shapes, programs.state_shapes
        count = jax.ShapeDtypeStruct((), jnp.int32)
        traced = jax.make_jaxpr(programs.segment)(*given, jax.ShapeDtypeStruct((), jnp.uint32), count)
        return sum(equation.primitive.name == "cond" for equation in equations_of(traced))

    # At every end of a window, and whether to adapt at all; what a dataset decides by its own numbers is computed always.
    alone, mapped = count_conditions(program), count_conditions(programs)
    assert 2 <= mapped <= alone
    uncounted = DatasetPrograms(program, [case.spec.num_rows] * 3)
    uncounted.program.kernel = copy.copy(program.kernel)
    uncounted.program.kernel.num_iterations = lambda state: None
    assert count_conditions(uncounted) < mapped
