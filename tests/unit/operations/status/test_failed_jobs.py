"""status: jobs whose last attempt failed are named with their error, until another attempt."""

from __future__ import annotations

from bayesmesh.errors import NOT_AGAIN
from bayesmesh.operations.status import status_table
from bayesmesh.workflow.job_files import job_of
from bayesmesh.workflow.plan import Plan


def test_a_job_that_failed_for_good_is_named_with_its_error(plan: Plan) -> None:
    fetch = job_of(plan.specification("fetch", "begun"))
    fetch.log.parent.mkdir(parents=True)
    said = "10:00:00 fetch data\n10:00:01 error: data.csv, row 1: 'g' is not a number\n  remedy: correct the cell\n"
    fetch.log.write_text(f"{said}10:00:01 {NOT_AGAIN}\n")
    plan.layout("begun").folder.mkdir(parents=True)
    assert "begun       failed: fetch" in status_table(plan)
    assert "begun: fetch failed: data.csv, row 1: 'g' is not a number\n  remedy: correct the cell" in status_table(plan)
    # Another attempt may succeed, as after a full disk, or has.
    for log in (said, "10:00:00 fetch data\n10:00:01 fetched\n"):
        fetch.log.write_text(log)
        assert "begun       begun " in status_table(plan)
        assert "failed" not in status_table(plan)
