"""What is measured of a program: in several processes all run the same calls, whatever each of them has measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.files import write_json
from bayesmesh.sampling.density.peers import Peers
from bayesmesh.sampling.program.audit import (
    SHORT_SECONDS,
    read_lengths,
    seconds_per_gradient,
    trace_gradients,
)
from bayesmesh.sampling.program.sizes import Lengths
from bayesmesh.store.records.checked import write_checked


class Slow(Peers):
    """One of two processes, the other of which takes long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.told = seconds, list[float]()

    def exchange(self, value: Any) -> list[Any]:
        self.told.append(value)
        return [value, self.seconds]


@pytest.mark.parametrize(("factor", "exchanges"), [(2.0, 1), (0.0, 2)])
def test_the_slowest_process_decides_how_gradients_are_measured(
    make_program: Callable[..., Any], make_case: Callable[..., Any], factor: float, exchanges: int
) -> None:
    """A process that measured in a loop while another did not would wait for it for ever."""
    case = make_case("gaussian", num_rows=4)
    program = make_program(case, "hmc", num_chains=1)
    peers = Slow(factor * SHORT_SECONDS)
    run = trace_gradients(program).lower().compile()
    seconds = seconds_per_gradient(program, run, program.put_data(case.rows), peers)
    assert len(peers.told) == exchanges
    assert seconds == max(peers.told[-1], peers.seconds) > 0


def test_lengths_are_read_from_the_audit(tmp_path: Path) -> None:
    write_checked(tmp_path / "audit.json", {"slice_draws": 2, "segment_draws": 8, "programs": {}})
    assert read_lengths(tmp_path / "audit.json") == Lengths(2, 8)


@pytest.mark.parametrize(
    "content",
    [{}, {"slice_draws": 2}, {"slice_draws": "2", "segment_draws": 8}],
)
def test_an_audit_without_a_length_is_damaged(tmp_path: Path, content: dict[str, object]) -> None:
    write_json(tmp_path / "audit.json", content)
    with pytest.raises(
        StoreError, match=r"audit\.json: is damaged: no .*_draws in it\n  remedy: delete it and run the"
    ):
        read_lengths(tmp_path / "audit.json")
