"""status: one line per experiment, at every point of its life."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.errors import StoreError
from bayesmesh.experiment.plan import Plan
from bayesmesh.status import progress, status_table, table, watch
from bayesmesh.status.queue import parse_queue
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.segments import ChainStore

NOW = 1_800_000_000.0
SEGMENT = 10
GOOD = (
    "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"
    "sampling: {mode: independent, chains: 4, chain_groups: 2, warmup: 20, draws: 100}\n"
)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Three experiments, of which one is listed; no scheduler."""
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [listed]\n")
    for name in ("listed", "other", "begun"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(GOOD)
    monkeypatch.setattr(table, "queued_jobs", lambda *_: {})
    return Plan(str(tmp_path / "config"), str(tmp_path / "results"))


def _finish(plan: Plan, name: str, r_hat: float | None) -> None:
    gates = [{"name": "r_hat", "value": r_hat}, {"name": "ess_bulk", "value": 1234.5}]
    verdict = {"verdict": "pass", "gates": gates, "num_chains": 4, "num_draws": 100, "num_divergences": 7}
    path = plan.layout(name).verdict
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(verdict))


@pytest.fixture
def sample(plan: Plan) -> Callable[..., ChainStore]:
    """Return a function that commits segments of a group, one a second, the last of them 5 s ago."""

    def commit(name: str = "listed", group: int = 0, draws: int = 30, identity: str = "0" * 16) -> ChainStore:
        folder = plan.layout(name).group(identity, group)
        store = ChainStore(folder, SEGMENT, {"identity": identity, "environment": {"kind": "a card"}})
        random = np.random.default_rng(group)
        total = 2 + draws // SEGMENT
        for number in range(total):
            phase, start = ("warmup", SEGMENT * number) if number < 2 else ("sample", SEGMENT * (number - 2))
            facts = {
                "acceptance": 0.8, "committed_at": NOW - 5 - (total - 1 - number), "count": SEGMENT, "seconds": 1.0,
                "host": "node3",
            }  # fmt: skip
            stats = {
                "warmup_sample_stats" if phase == "warmup" else "sample_stats": {"lp": random.normal(size=(SEGMENT, 2))}
            }
            store.commit(phase, start, stats, {"q": np.zeros(2)}, facts)
        return store

    return commit


def row(plan: Plan, name: str, now: float = NOW) -> dict[str, str]:
    """The cells of an experiment's line, by column."""
    lines = status_table(plan, now).splitlines()
    starts = [lines[0].index(title) for title in table.HEADER]
    (line,) = [line for line in lines if line.startswith(name + " ")]
    cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(table.HEADER, cells, strict=True))


def _lock(store: ChainStore, heartbeat: float) -> None:
    path = store.folder / LOCK_NAME
    path.write_text(json.dumps({"host": "node7", "pid": 1, "job": "42", "heartbeat_seconds": 5.0}))
    os.utime(path, (heartbeat, heartbeat))


# -- before and after --------------------------------------------------------------------------------------------------


def test_what_was_listed_or_begun_is_shown(plan: Plan) -> None:
    plan.layout("begun").folder.mkdir(parents=True)
    lines = status_table(plan).splitlines()
    assert [line.split()[0] for line in lines[:-2]] == ["experiment", "begun", "listed"]
    assert row(plan, "listed")["state"] == "not begun"
    assert row(plan, "begun")["state"] == "begun"
    assert lines[-1] == "report: not written yet"


def test_a_finished_experiment_shows_its_numbers(plan: Plan) -> None:
    _finish(plan, "other", 1.00321)
    found = row(plan, "other")
    assert [found[k] for k in ("state", "chains", "R-hat", "ESS", "divergences")] == [
        "pass",
        "4",
        "1.0032",
        "1234",
        "7",
    ]


def test_a_number_that_is_not_there_is_a_dash(plan: Plan) -> None:
    _finish(plan, "other", None)
    assert row(plan, "other")["R-hat"] == "-"


def test_the_report_is_named_by_its_whole_path(plan: Plan) -> None:
    index = Path(plan.results) / "index.html"
    index.parent.mkdir()
    index.touch()
    assert status_table(plan).splitlines()[-1] == f"report: {index.resolve()}"


def test_a_damaged_file_is_named(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    _finish(plan, "other", 1.0)
    plan.layout("other").verdict.write_text("{")
    with pytest.raises(StoreError, match=r"verdict\.json: is damaged"):
        status_table(plan)
    store = sample("begun")
    (store.folder / "commits" / "sample-000000020-000000030.json").write_text("{}")
    with pytest.raises(StoreError, match=r"sample-000000020-000000030\.json: is damaged"):
        status_table(plan)


# -- while it runs -----------------------------------------------------------------------------------------------------


def test_a_running_experiment_shows_how_far_it_is(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample(group=0, draws=30)
    sample(group=1, draws=50)
    found = row(plan, "listed")
    assert found["state"] == "sampling"
    # Draws of a chain, averaged over the groups; a segment of ten each second in both groups.
    assert (found["draws"], found["per s"]) == ("40/100", "10")
    assert found["left"] == "7 s", "the slowest group has 70 draws to go"
    assert (found["accept"], found["where"], found["last commit"]) == ("0.80", "a card on node3", "5 s ago")
    assert found["R-hat"].startswith(("~1.", "~0.9"))
    assert 1 < float(found["ESS"][1:]) < 1000


def test_r_hat_so_far_sees_chains_apart(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    from bayesmesh.status.convergence import log_density_so_far

    groups = [progress.read_group(sample(group=g).folder) for g in (0, 1)]
    good, _ = log_density_so_far(groups)
    folder = plan.layout("other").group("0" * 16, 0)
    store = ChainStore(folder, 30, {"identity": "0" * 16})
    far = 9 + np.random.default_rng(2).normal(size=(30, 2))
    store.commit(
        "sample",
        0,
        {"sample_stats": {"lp": far}},
        {},
        {"acceptance": 1.0, "committed_at": NOW, "count": 30, "seconds": 1.0},
    )
    bad, _ = log_density_so_far([*groups, progress.read_group(folder)])
    assert good < 1.2 < 1.5 < bad


def test_warmup_is_counted_by_itself(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample(draws=0)
    found = row(plan, "listed")
    assert (found["state"], found["draws"], found["left"]) == ("warming up", "10/20 warmup", "-")


def test_a_group_that_has_gone_quiet_is_stopped(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample()
    assert row(plan, "listed", NOW + 20)["state"] == "sampling"
    assert row(plan, "listed", NOW + 60)["state"] == "stopped"


def test_a_lock_says_who_is_at_work_and_whether_it_lives(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    store = sample()
    _lock(store, NOW + 50)
    assert row(plan, "listed", NOW + 60)["where"] == "a card on node7"
    assert row(plan, "listed", NOW + 60)["state"] == "sampling"
    assert row(plan, "listed", NOW + 50 + 5 * progress.STALE_BEATS)["state"] == "stale lock"


def test_draws_that_go_on_are_not_hidden_by_an_old_verdict(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample()
    _finish(plan, "listed", 1.0)
    assert row(plan, "listed")["state"] == "sampling"
    assert row(plan, "listed")["R-hat"].startswith("~")
    assert row(plan, "listed", NOW + 60)["state"] == "pass"


def test_all_manifests_mean_sampled(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample(draws=100)
    for path in plan.manifests("listed"):
        path.write_text("{}")
    assert row(plan, "listed")["state"] == "sampled"


def test_the_identity_that_was_written_last_counts(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for identity, draws, age in (("a" * 16, 50, 0), ("b" * 16, 30, 100)):
        folder = sample(draws=draws, identity=identity).folder
        for path in (folder / "commits", folder / "store.json"):
            os.utime(path, (NOW - age, NOW - age))
    assert row(plan, "listed")["draws"] == "25/100"


def test_a_marker_that_goes_while_it_is_read_is_no_damage(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    folder = sample().folder
    gone = folder / "commits" / "sample-000000020-000000030.json"
    gone.unlink()
    gone.symlink_to("nowhere")  # listed, and not there
    assert progress.read_group(folder).done == 30


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_jobs_of_this_folder_are_told_apart(tmp_path: Path) -> None:
    lines = [
        f"RUNNING|n1|None|{tmp_path}|rule_sample_wildcards_digits_group-000",
        f"PENDING||Resources|{tmp_path}|rule_sample_wildcards_digits_group-001",
        f"PENDING||Priority|{tmp_path}|rule_average_wildcards_digits-two",
        "RUNNING|n1|None|/elsewhere|rule_sample_wildcards_digits_group-000",
        "RUNNING|n1|None|/elsewhere|a comment of somebody else",
        "",
    ]
    found = parse_queue("\n".join(lines), ["digits", "digits-two"], tmp_path)
    assert {name: [(j.rule, j.state) for j in jobs] for name, jobs in found.items()} == {
        "digits": [("sample", "RUNNING"), ("sample", "PENDING")],
        "digits-two": [("average", "PENDING")],
    }


@pytest.mark.parametrize(
    ("line", "state", "where"),
    [
        ("PENDING||Resources|{}|rule_sample_wildcards_listed_group-000", "queued: Resources", "-"),
        ("RUNNING|n3|None|{}|rule_sample_wildcards_listed_group-000", "warming up", "n3"),
        ("RUNNING|n3|None|{}|rule_diagnose_wildcards_listed", "running diagnose", "n3"),
    ],
)
def test_a_job_in_the_queue_is_the_state(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, line: str, state: str, where: str
) -> None:
    jobs = parse_queue(line.format("/here"), ["listed"], Path("/here"))
    monkeypatch.setattr(table, "queued_jobs", lambda *_: jobs)
    assert row(plan, "listed")["state"] == state
    assert row(plan, "listed")["where"] == where


# -- cost --------------------------------------------------------------------------------------------------------------


def test_looking_changes_nothing_and_is_quick(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=90)
    root = Path(plan.results).parent
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    start = time.process_time()
    status_table(plan)
    assert time.process_time() - start < 2
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_watching_shows_it_again_until_ctrl_c() -> None:
    calls = []

    def made() -> str:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return f"table {len(calls)}"

    out = Terminal()
    watch(made, every=0, out=out)
    assert "table 1" in out.getvalue()
    assert "table 2" in out.getvalue()


def test_watching_without_a_terminal_shows_it_once() -> None:
    out = io.StringIO()
    watch(lambda: "the table", out=out)
    assert out.getvalue() == "the table\n"
