"""What a job printed is the error of the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.checks import check_experiment
from bayesmesh.errors import NOT_AGAIN, ConfigError, NotFinished
from bayesmesh.notebook.sample import WHERE, describe
from bayesmesh.notebook.stages import Planned, error_of, pass_on_warnings, plan


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    results = tmp_path_factory.mktemp("results")
    settings = {"sampling": {"chains": 4, "chain_groups": 2, "mode": "independent"}}
    described = describe("gaussian", "gaussian", "nuts", "mine", results, settings)
    experiment = check_experiment(WHERE, described.values)
    stages = plan("mine", experiment, Path(results))
    assert [len(jobs) for jobs in stages] == [1, 1, 1, 2, 1, 1, 1]
    assert all(planned.is_needed for jobs in stages for planned in jobs)
    return stages[3][1]


def test_an_error_is_that_of_the_job(planned: Planned) -> None:
    said = "10:00:00 sample\n10:00:01 error: config/experiments/mine.yaml: key 'x': no\n  remedy: yes\n    really\n"
    error = error_of(planned, "mine", 2, f"{said}10:00:01 {NOT_AGAIN}\n")
    assert type(error) is ConfigError
    assert (error.message, error.remedy) == ("bayesmesh.sample: key 'x': no", "yes\n    really")
    assert type(error_of(planned, "mine", 75, said)) is NotFinished


def test_warnings_of_a_job_are_those_of_the_call() -> None:
    said = "10:00:00 fetch data\n10:00:01 warning: 'x' is odd\n10:00:01 data: a warning: no line of its own\n"
    with pytest.warns(UserWarning, match="^'x' is odd$") as caught:
        pass_on_warnings(said)
    assert [Path(each.filename) for each in caught] == [Path(__file__)]
