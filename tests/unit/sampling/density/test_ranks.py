"""The rank of a process: from variables of JAX, from Slurm, or alone."""

from __future__ import annotations

import re

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.sampling.density.ranks import ProcessRank, check_num_processes, find_rank

JAX = {"JAX_COORDINATOR_ADDRESS": "host:123", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "gpu[03-05,9],cpu1",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "1",
}


def test_variables_of_jax() -> None:
    assert find_rank(JAX) == ProcessRank(4, 3, "host:123", "JAX_NUM_PROCESSES")
    assert find_rank(JAX | STEP).num_processes == 4, "what a launcher sets by itself does not go before them"


def test_a_step_of_slurm() -> None:
    rank = find_rank(STEP)
    assert (rank.num_processes, rank.index, rank.device) == (6, 4, 1)
    host, _, port = rank.address.partition(":")
    assert host == "gpu03"
    assert 50_000 <= int(port) < 60_000
    assert find_rank(STEP | {"SLURM_STEP_ID": "3"}).address != rank.address
    assert find_rank(STEP | {"SLURM_JOB_ID": "78"}).address != rank.address


def test_a_job_that_is_no_step_of_several_is_one_process() -> None:
    assert find_rank({k: v for k, v in STEP.items() if k != "SLURM_STEP_NUM_TASKS"}) == ProcessRank()
    assert find_rank({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "6", "SLURM_PROCID": "0"}) == ProcessRank(), (
        "a batch script"
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLURM_STEP_NUM_TASKS", "abc", "SLURM_STEP_NUM_TASKS=abc: not an integer of at least 1"),
        ("SLURM_NTASKS", "abc", "SLURM_NTASKS=abc: not an integer"),
        ("SLURM_PROCID", "9", "SLURM_PROCID=9: not one of 6 tasks"),
        ("SLURM_PROCID", "6", "SLURM_PROCID=6: not one of 6 tasks"),
        ("SLURM_PROCID", "-1", "SLURM_PROCID=-1: not an integer"),
        ("SLURM_JOB_ID", "x", "SLURM_JOB_ID=x: not an integer"),
        ("SLURM_LOCALID", "²", "SLURM_LOCALID=²: not an integer"),
        ("SLURM_STEP_NUM_NODES", "0", "SLURM_STEP_NUM_NODES=0: not an integer of at least 1"),
        ("SLURM_STEP_NODELIST", "n[1-", "SLURM_STEP_NODELIST=n[1-: not a Slurm host list"),
        ("SLURM_STEP_NODELIST", "n[]", "SLURM_STEP_NODELIST=n[]: not a Slurm host list"),
        ("SLURM_STEP_NODELIST", "", "SLURM_STEP_NODELIST: not set"),
    ],
)
def test_what_slurm_cannot_have_said_is_named_with_a_remedy(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        find_rank(STEP | {name: value})
    assert "srun" in caught.value.remedy


@pytest.mark.parametrize("left_out", JAX)
def test_all_or_none_of_the_variables(left_out: str) -> None:
    with pytest.raises(ConfigError, match=f"{left_out}: not set"):
        find_rank({k: v for k, v in JAX.items() if k != left_out})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("JAX_COORDINATOR_ADDRESS", "host", "not of the form HOST:PORT"),
        ("JAX_NUM_PROCESSES", "two", "JAX_NUM_PROCESSES=two"),
        ("JAX_PROCESS_ID", "4", "JAX_PROCESS_ID=4"),
        ("JAX_PROCESS_ID", "-1", "JAX_PROCESS_ID=-1"),
        ("BAYESMESH_JOIN_SECONDS", "soon", "BAYESMESH_JOIN_SECONDS=soon"),
    ],
)
def test_an_impossible_value_is_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_rank(JAX | {name: value})


@pytest.mark.parametrize(
    ("rank", "processes", "remedy"),
    [
        (ProcessRank(2, 1, "host:1"), 1, "processes: 2"),
        (ProcessRank(), 4, "--processes 1x4"),
        (ProcessRank(8, 0, "host:1"), 4, "processes: 8"),
    ],
)
def test_what_was_started_must_be_what_was_asked_for(rank: ProcessRank, processes: int, remedy: str) -> None:
    check_num_processes(rank, rank.num_processes, "x")
    with pytest.raises(ConfigError, match=r"experiment 'x': key 'compute\.processes'") as caught:
        check_num_processes(rank, processes, "x")
    assert remedy in caught.value.remedy
