"""Chains that are lost or stuck end a run, in the same window however it is cut; a single one is only named."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.errors import SamplingError
from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.loop.watch import WINDOW, ChainWatch
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger

CHAINS = range(8, 12)


def statistics(num_iterations: int, **values: Any) -> dict[str, np.ndarray]:
    """Those of chains that move well; others by name."""
    shape = (num_iterations, len(CHAINS))
    usual = {"lp": -1.0, "accepted": True, "acceptance_rate": 0.8, "diverging": False, "step_size": 0.5}
    return {k: np.broadcast_to(np.asarray(v), shape) for k, v in (usual | values).items()}


def watch(**options: Any) -> ChainWatch:
    return ChainWatch("some group-001", CHAINS, **{"is_adjusted": True, "last": {}, "dtype": "float64"} | options)


STUCK = {"accepted": False, "acceptance_rate": 1e-5}
TROUBLED = {
    "lost": {"lp": np.nan},
    "frozen": {"step_size": 1e-30},
    "divergent": {"diverging": True},
    "stuck": STUCK,
}


UNITS = {"warmup": "warmup iterations", "sample": "draws"}


@pytest.mark.parametrize(("share", "is_divergent"), [(0.5, False), (1.0, True)])
def test_a_draw_of_many_trajectories_is_divergent_if_all_are(share: float, is_divergent: bool) -> None:
    found = watch()
    found.add("sample", 0, statistics(WINDOW, diverging=True, divergent_share=share))
    assert (found.ended is not None) == is_divergent


@pytest.mark.parametrize(
    ("trouble", "phase"), [(t, p) for t in TROUBLED for p in UNITS if (t, p) != ("frozen", "warmup")]
)
def test_a_window_in_which_all_chains_are_in_trouble_ends_the_run(trouble: str, phase: str) -> None:
    found = watch()
    found.add(phase, 0, statistics(WINDOW + 1))
    found.add(phase, WINDOW + 1, statistics(2 * WINDOW - 2, **TROUBLED[trouble]))
    assert found.ended is None, "no window is troubled from its first iteration to its last"
    found.add(phase, 3 * WINDOW - 1, statistics(1, **TROUBLED[trouble]))
    assert found.ended == {"phase": phase, "done": 3 * WINDOW, "trouble": trouble}
    with pytest.raises(
        SamplingError, match=rf"some group-001: .*all chains \(8 to 11\).* in {UNITS[phase]} 200 to 299"
    ) as said:
        found.check(1000)
    assert "sampling.initial" in said.value.remedy
    assert said.value.exit_code == 7


def test_a_step_size_that_has_vanished_is_left_to_warmup() -> None:
    found = watch()
    found.add("warmup", 0, statistics(5 * WINDOW, **TROUBLED["frozen"]))
    assert found.ended is None
    found.add("sample", 0, statistics(WINDOW, **TROUBLED["frozen"]))
    assert found.ended == {"phase": "sample", "done": WINDOW, "trouble": "frozen"}


@pytest.mark.parametrize(("step_size", "is_end"), [(1e-7, True), (1e-6, False)])
def test_in_single_precision_a_step_that_moves_nothing_ends_warmup(step_size: float, is_end: bool) -> None:
    found = watch(dtype="float32")
    found.add("warmup", 0, statistics(WINDOW, step_size=step_size))
    assert (found.ended is not None) == is_end
    if is_end:
        with pytest.raises(SamplingError, match=r"step size of all chains \(8 to 11\) was below 1\.2e-07") as failure:
            found.check(1000)
        assert failure.value.remedy.startswith("set `compute: {dtype: float64}`")


@pytest.mark.parametrize("trouble", TROUBLED)
def test_a_run_ends_in_the_same_window_however_it_is_cut(trouble: str) -> None:
    """Every second piece by a new process, which knows the facts of the last commit alone."""
    flags = np.random.default_rng(4).random((1000, 1)) < 0.97
    flags[430:640] = True
    usual, odd = statistics(1000), statistics(1000, **TROUBLED[trouble])
    values = {k: np.where(flags, odd[k], usual[k]) for k in usual}
    for sizes in ((1000,), (64,) * 15 + (40,), (1, 99, 399, 1, 100, 37, 363)):
        found, done = watch(), 0
        for i, size in enumerate(sizes):
            found.add("sample", done, {k: v[done : done + size] for k, v in values.items()})
            done += size
            found = watch(last=found.facts()) if i % 2 else found
        assert found.ended == {"phase": "sample", "done": 600, "trouble": trouble}


@pytest.mark.parametrize("trouble", TROUBLED)
def test_one_chain_in_trouble_is_named_once_and_does_not_end_the_run(
    trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, where = watch(), np.arange(len(CHAINS)) == 2
    usual, odd = statistics(WINDOW), statistics(WINDOW, **TROUBLED[trouble])
    with caplog.at_level(logging.WARNING):
        for start in (0, WINDOW, 2 * WINDOW):
            found.add("sample", start, {k: np.where(where, odd[k], usual[k]) for k in usual})
    assert found.ended is None
    assert found.facts() == {"troubled": {trouble: [10]}}
    assert len(caplog.messages) == 1
    assert "chain 10" in caplog.text
    found.add("sample", 3 * WINDOW, usual)
    assert found.facts() == {}


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"is_adjusted": False}, STUCK),
        ({}, {"accepted": False, "acceptance_rate": 0.001}),
        ({}, STUCK | {"swapped": True}),
        ({}, {"lp": 0.0}),
    ],
    ids=["without an accept step", "a slow walk", "chains that swap", "a flat density"],
)
def test_chains_that_may_move_are_not_called_stuck(options: dict[str, Any], values: dict[str, Any]) -> None:
    found = watch(**options)
    found.add("sample", 0, statistics(5 * WINDOW, **values))
    assert found.ended is None
    assert found.facts() == {}


# -- in the loop ----------------------------------------------------------------------------------------------------------

STEP_SIZES = {"divergent": ("hmc", 1e5), "frozen": ("hmc", 1e-30), "stuck": ("random_walk", 1e5)}
"""Trouble -> kernel and a step size, without warmup, that brings it about."""


@pytest.fixture
def run(build: Callable[..., Any], make_case: Callable[..., Any], tmp_path: Path) -> Callable[..., ChainStore]:
    """Return a function of trouble, name of a store, lengths of a slice and of a segment, and draws."""

    def run(trouble: str, name: str, most: int, segment: int, draws: int, compiled: Any = None) -> ChainStore:
        kernel, step_size = STEP_SIZES[trouble]
        options = {"num_leapfrog_steps": 2} if kernel == "hmc" else {}
        case = make_case("gaussian")
        built = build(
            case, kernel, num_warmup=0, most_draws=64, is_optimised=False, initial_step_size=step_size, **options
        )
        program = copy.copy(built.program)
        program.slice_draws = most
        store = ChainStore(tmp_path / name, segment, {"identity": "one"})
        with Interruption(0) as interruption:
            loop = Loop(
                program, built.compiled if compiled is None else compiled, GroupKey(3, 8), built.data, store,
                Ledger(tmp_path / "ledger", "test"), interruption, label="some group-001", facts={},
            )  # fmt: skip
            loop.run(draws, store.begin_writing())
        return store

    return run


@pytest.mark.parametrize("trouble", STEP_SIZES)
def test_a_run_ends_early_and_keeps_its_draws(run: Callable[..., ChainStore], trouble: str, tmp_path: Path) -> None:
    with pytest.raises(SamplingError) as whole:
        run(trouble, "whole", 64, 256, 10_000)
    assert run(trouble, "cut", 7, 16, 53).commits()[-1].facts["runs"][trouble] == 53
    for compiled in (None, {}):  # Again, it has nothing to compute.
        with pytest.raises(SamplingError) as cut:
            run(trouble, "cut", 7, 16, 10_000, compiled)
        assert str(cut.value) == str(whole.value)
    assert "in draws 0 to 99" in cut.value.message
    for name, segment in (("whole", 256), ("cut", 16)):
        last = ChainStore(tmp_path / name, segment, {"identity": "one"}).commits()[-1]
        assert last.facts["ended"] == {"phase": "sample", "done": 100, "trouble": trouble}
        assert 100 <= last.stop <= 256
    assert run(trouble, "cut", 7, 16, 99).commits()[-1].stop == last.stop
