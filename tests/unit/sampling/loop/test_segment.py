"""The loop commits whole segments, what has waited for too long, and the same draws in either case."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger

WARMUP, DRAWS, SLICE, SEGMENT = 8, 22, 4, 16


@pytest.fixture(scope="module")
def built(build: Callable[..., Any], make_case: Callable[..., Any]) -> Any:
    return build(
        make_case("gaussian"), "hmc", num_warmup=WARMUP, most_draws=SLICE, is_optimised=False, num_leapfrog_steps=2
    )


@pytest.fixture
def run(built: Any, tmp_path: Path) -> Callable[..., list[tuple[str, int]]]:
    """Return a function of (name of a store, aimed seconds of a segment) that samples and returns every commit."""

    def run(name: str, segment_seconds: float, draws: int = DRAWS, **more: Any) -> list[tuple[str, int]]:
        program, made = copy.copy(built.program), []
        program.sampling = program.sampling.model_copy(update={"segment_seconds": segment_seconds})
        store = ChainStore(tmp_path / name, SEGMENT, {"identity": "one"})
        commit = store.commit

        def noted(phase: str, start: int, *rest: Any, **more: Any) -> Any:
            made.append((phase, start))
            return commit(phase, start, *rest, **more)

        store.commit = noted  # type: ignore[method-assign]
        with Interruption(0) as interruption:
            loop = Loop(
                program, built.compiled, GroupKey(3, 0), built.data, store, Ledger(tmp_path / "ledger", "test"),
                interruption, label=name, facts={}, **more,
            )  # fmt: skip
            loop.run(draws, None)
        return made

    return run


def drawn(folder: Path) -> dict[str, np.ndarray]:
    root = open_group(folder / "draws.zarr")
    return {f"{group}/{n}": np.asarray(a[...]) for group, part in root.groups() for n, a in part.arrays()}


def test_a_segment_is_committed_when_it_is_whole_and_the_last_one_at_the_end(run: Any) -> None:
    assert run("whole", 60.0) == [("warmup", 0), ("sample", 0), ("sample", 16)]


def test_draws_that_a_look_wants_are_committed_for_it(run: Any) -> None:
    assert run("looks", 60.0, commit_at=[6, 16]) == [("warmup", 0), ("sample", 0), ("sample", 6), ("sample", 16)]


def test_what_has_waited_for_the_time_of_a_segment_is_committed(
    run: Any, built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few gradients the compile stage took a draw for: no more than that time is lost with the job."""
    # On a busy machine a slice may take longer than it should, and would be made shorter.
    monkeypatch.setattr("bayesmesh.sampling.loop.segment.SLICE_SECONDS", 1e6)
    run("whole", 60.0)
    # Time is looked at while a slice runs, and what is committed then is what was made before it and with it.
    # The first slice is one iteration, and the next one four times as long.
    late = run("late", 1e-6)
    assert late == [
        ("warmup", 0),
        ("warmup", 1),
        ("warmup", 5),
        *(("sample", start) for start in range(0, DRAWS, SLICE)),
    ]
    whole, pieces = drawn(tmp_path / "whole"), drawn(tmp_path / "late")
    assert whole.keys() == pieces.keys()
    expected = built.run(DRAWS, segment=SLICE)
    for name, values in whole.items():
        np.testing.assert_array_equal(pieces[name], values, err_msg=name)
    np.testing.assert_array_equal(np.swapaxes(whole["posterior/mean"], 0, 1), expected.draws["mean"])
    assert [c.stop for c in ChainStore(tmp_path / "late", SEGMENT, {"identity": "one"}).commits()] == [8, 16, 22]


def test_slices_that_take_long_are_made_shorter(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that progress is seen and a request to stop is heard; the draws are the same."""
    run("whole", 60.0)
    monkeypatch.setattr("bayesmesh.sampling.loop.segment.SLICE_SECONDS", 1e-9)
    short = run("short", 1e-6)
    # The first iteration is a slice of its own.
    assert short[:3] == [("warmup", 0), ("warmup", 1), ("warmup", 2)]
    assert len(short) == WARMUP + DRAWS
    whole, pieces = drawn(tmp_path / "whole"), drawn(tmp_path / "short")
    for name, values in whole.items():
        np.testing.assert_array_equal(pieces[name], values, err_msg=name)


def test_memory_for_draws_is_that_of_a_segment(run: Any, built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the run: buffers are as long as a segment, or as what is wanted where that is less."""
    lengths = []
    empty = np.empty

    def noted(shape: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(shape, tuple) and len(shape) > 2 and shape[0] == built.program.num_chains:
            lengths.append(shape[1])
        return empty(shape, *rest, **more)

    monkeypatch.setattr("bayesmesh.sampling.loop.writer.np.empty", noted)
    run("long", 60.0, 3 * SEGMENT + 5)
    assert lengths == [SEGMENT, SEGMENT, SEGMENT, 5]


@pytest.mark.parametrize(
    ("seconds", "gradients", "longest", "most"),
    [
        # Cheap: as many as the program can make, reached in steps.
        (1e-4, 1, 1, [4, 16, 64, 64]),
        # The time of a slice rules.
        (0.1, 1, 1, [4, 16, 20, 20]),
        # A trajectory of the next slice may be 1,000 times as long as those of the last one.
        (0.009, 1, 1000, [3, 3, 3]),
        (100.0, 1, 1, [1, 1]),
    ],
)
def test_measured_time_rules_the_length_of_a_slice(
    built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, gradients: int, longest: int, most: list[int]
) -> None:  # fmt: skip
    """From one iteration on, whatever a cost analysis says."""
    program = copy.copy(built.program)
    program.slice_draws, program.kernel = 64, copy.copy(program.kernel)
    program.kernel.most_gradients = lambda: longest
    store, clock = ChainStore(tmp_path / "one", SEGMENT, {"identity": "one"}), [0.0]
    monkeypatch.setattr("bayesmesh.sampling.loop.segment.time.perf_counter", lambda: clock[0])
    ledger = Ledger(tmp_path / "ledger", "test")
    loop = Loop(program, {}, GroupKey(3, 0), {}, store, ledger, Interruption(0), label="one", facts={})
    assert loop._most == 1
    for expected in most:
        clock[0] += loop._most * seconds
        loop._fit(loop._most, loop._most * gradients)
        assert loop._most == expected
