"""What cannot fit is refused with its sizes, from shapes alone."""

from __future__ import annotations

import dataclasses

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.sampling.loop.memory import check_memory, check_programs


@pytest.mark.parametrize(("mesh", "copies"), [((1, 1), 1), ((1, 2), 1), ((2, 1), 2)])
def test_data_beyond_the_memory_are_refused_before_they_are_read(make_case, make_program, mesh, copies) -> None:
    case = make_case("gaussian")
    num_rows = 2**27
    case = dataclasses.replace(case, spec=dataclasses.replace(case.spec, num_rows=num_rows))
    program = make_program(case, "hmc", mesh=mesh, row_tile=num_rows)
    # Two float64 columns, as read and as laid out, and on each device along the chains; the rest is small.
    needed = num_rows * (16 * (2 + copies) + 1 * (1 + copies))
    check_memory(program, needed + 2**20)
    check_memory(program, None)
    with pytest.raises(
        ConfigError, match=r"needs at least [\d.]+ GiB of memory \(rows 2, laid out 2.12, data .*and this machine"
    ) as caught:
        check_memory(program, needed)
    assert "key 'data'" in caught.value.remedy


def test_programs_beyond_the_memory_are_refused(make_case, make_program) -> None:
    program = make_program(make_case("gaussian"), "hmc")
    memory = [
        {"arguments": 9, "temporaries": 2**30, "outputs": 2**30},
        {"arguments": 9, "temporaries": 0, "outputs": 5},
    ]
    check_programs(program, memory, 2**31)
    check_programs(program, memory, None)
    with pytest.raises(
        ConfigError, match=r"at least 2 GiB of memory \(temporaries 1, outputs 1 GiB\), and .* has 1 GiB"
    ) as caught:
        check_programs(program, memory, 2**30)
    for key in ("sampling.chains", "compute.row_tile"):
        assert key in caught.value.remedy
