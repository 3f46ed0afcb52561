"""status: one line per experiment, at every point of its life, shown once or again and again; looking writes nothing."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.diagnostics.verdict import GateResult, NumCoordinates, Verdict, write_verdict
from bayesmesh.errors import NOT_AGAIN
from bayesmesh.operations import status
from bayesmesh.operations.status import status_table, watch
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.slurm.queue import Queue, parse_queue
from recording import record_as

NOW = 1_800_000_000.0
SEGMENT = 10


def _finish(plan: Plan, name: str, r_hat: float | None) -> None:
    about = {"limit": 1.0, "where": "", "severity": "fail", "verdict": "pass", "found": ""}
    gates = (
        GateResult(name="r_hat", direction="at most", value=r_hat, **about),
        GateResult(name="ess_bulk", direction="at least", value=1234.5, **about),
    )
    verdict = Verdict(
        verdict="pass", gates=gates, experiment=name, num_chains=4, num_draws=100, latents={}, num_divergences=7,
        num_coordinates=NumCoordinates(summaries=1, latents=0, listed=1), divergence_share=0.0, bfmi=(0.9,) * 4,
        acceptance_rate=0.8,
    )  # fmt: skip
    plan.layout(name).verdict.parent.mkdir(parents=True)
    write_verdict(plan.layout(name).verdict, verdict)
    _record_as(plan, name, "diagnose", plan.layout(name).verdict)


def _record_as(plan: Plan, name: str, stage: str, *outputs: Path) -> None:
    """Record results as made with the configuration."""
    made_with = {"specification": plan.job(stage, name).digest, "code": plan.code_of_stage(stage, name)}
    record_as(Path(plan.results), name, stage, outputs, **made_with)


def row(plan: Plan, name: str, now: float = NOW) -> dict[str, str]:
    """The cells of an experiment's line, by column."""
    lines = status_table(plan, now).splitlines()
    starts = [lines[0].index(title) for title in status.HEADER]
    (line,) = [line for line in lines if line.startswith(name + " ")]
    cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(status.HEADER, cells, strict=True))


def _lock(folder: Path, heartbeat: float) -> None:
    """Have a process of another machine hold a group."""
    path = folder / LOCK_NAME
    path.write_text(json.dumps({"host": "node7", "pid": 1, "token": "x", "heartbeat_seconds": 5.0}))
    os.utime(path, (heartbeat, heartbeat))


def _end(plan: Plan, name: str, num_draws: int, reason: str = "", identity: str = "0" * 16) -> None:
    """Write the manifests of sampling that has ended, by the rule of the configuration if there is a reason."""
    sampling = plan.experiments[name].sampling
    stop = None
    if sampling.stop is not None and reason:
        rule = {**sampling.stop.model_dump(mode="json"), "draws": sampling.draws}
        stop = {"rule": rule, "reason": reason, "num_draws": num_draws}
    for path in plan.manifests(name):
        about = {"folder": f"chains/{identity}/{path.stem}", "num_chains": 2, "segment_draws": SEGMENT}
        rest = {"environment": {}, "changed_environment": []}
        path.write_text(json.dumps({"identity": identity, "num_draws": num_draws, "stop": stop, **about, **rest}))


def _ask(plan: Plan, name: str, sampling: str) -> Plan:
    """Change the configuration of an experiment's sampling."""
    folder = plan.config / "experiments"
    (folder / f"{name}.yaml").write_text((folder / "begun.yaml").read_text().replace("draws: 100", sampling))
    return Plan(str(plan.config), plan.results)


# -- before and after --------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("diagnostics/verdict.json", "{"),
        ("diagnostics/verdict.json", "{}"),
        ("chains/group-001.json", "{"),
        ("chains/group-001.json", "[]"),
        ("chains/0000000000000000/group-000/store.json", '{"environment": 3}'),
        ("chains/0000000000000000/group-000/commits/sample-000000020-000000030.json", "{}"),
        ("chains/0000000000000000/group-000/draws.zarr/sample_stats/lp/c/0/0", ""),
    ],
)
def test_damage_stays_in_the_row_of_its_experiment(
    plan: Plan, sample: Callable[..., ChainStore], name: str, content: str
) -> None:
    sample()
    _finish(plan, "listed", 1.0)
    if "verdict" in name:
        sample(group=1)
        _end(plan, "listed", 100)
    _finish(plan, "other", 1.0)
    path = plan.layout("listed").folder / name
    assert path.exists() or "group-001" in name
    path.write_text(content)
    assert row(plan, "listed")["state"] == ("damaged" if "verdict" in name else "unreadable")
    assert row(plan, "other")["state"] == "pass"
    assert path.name in status_table(plan)
    assert "\n  remedy: " in status_table(plan)


# -- while it runs -----------------------------------------------------------------------------------------------------


def test_a_running_experiment_shows_how_far_it_is(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    _lock(sample(group=0, draws=30).folder, NOW)
    sample(group=1, draws=50)
    found = row(plan, "listed")
    assert found["state"] == "sampling"
    # Draws of a chain, averaged over the groups; a segment of ten each second in both groups.
    assert (found["draws"], found["per s"]) == ("40/100", "10")
    assert found["left"] == "7 s", "the slowest group has 70 draws to go"
    assert (found["accept"], found["where"], found["last commit"]) == ("0.80", "a card on node7", "5 s ago")
    assert found["R-hat"].startswith(("~1.", "~0.9"))
    assert 1 < float(found["ESS"][1:]) < 1000


def test_draws_that_go_on_are_not_hidden_by_an_old_verdict(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    folders = [sample(group=g).folder for g in (0, 1)]
    _finish(plan, "listed", 1.0)
    _end(plan, "listed", 100)
    assert row(plan, "listed")["state"] == "pass"
    _lock(folders[0], NOW)
    assert row(plan, "listed")["state"] == "sampling"
    assert row(plan, "listed")["R-hat"].startswith("~")


# -- when it has ended -------------------------------------------------------------------------------------------------


def test_all_manifests_mean_sampled(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=100)
    _end(plan, "listed", 100)
    assert (row(plan, "listed")["state"], row(plan, "listed")["draws"]) == ("sampled", "100/100")
    plan.manifests("listed")[1].unlink()
    assert row(plan, "listed")["state"] == "stopped"


def test_a_verdict_about_other_chains_is_not_shown(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=100)
    _end(plan, "listed", 100)
    _finish(plan, "listed", 1.0)
    about = plan.layout("listed").posterior / "zarr.json"
    about.parent.mkdir()
    for identity, state in (("0" * 16, "pass"), ("1" * 16, "sampled")):
        about.write_text(json.dumps({"attributes": {"identity": identity}}))
        _record_as(plan, "listed", "assemble", about.parent)
        assert row(plan, "listed")["state"] == state


def test_an_edited_verdict_is_not_taken_for_true(plan: Plan) -> None:
    _finish(plan, "listed", 1.2)
    path = plan.layout("listed").verdict
    path.write_text(path.read_text().replace("1.2", "1.0"))
    found = row(plan, "listed")
    assert (found["state"], found["R-hat"]) == ("damaged", "-")
    assert f"listed: {path}: has been altered: its sha256 is another one\n  remedy: " in status_table(plan)
    path.unlink()
    assert row(plan, "listed")["state"] == "damaged"
    assert f"listed: {path}: is missing" in status_table(plan)


@pytest.mark.parametrize(
    ("reason", "said"), [("met", "30/100 rule met"), ("seconds", "30/100 time up"), ("draws", "30/100 limit")]
)
def test_a_rule_says_how_many_draws_there_are(
    plan: Plan, sample: Callable[..., ChainStore], reason: str, said: str
) -> None:
    plan = _ask(plan, "listed", "draws: 100, stop: {max_r_hat: 1.01}")
    folders = [sample(group=group, draws=50).folder for group in (0, 1)]
    _lock(folders[0], NOW)
    assert row(plan, "listed")["left"].startswith("< ")
    (folders[0] / LOCK_NAME).unlink()
    assert (row(plan, "listed")["state"], row(plan, "listed")["draws"]) == ("stopped", "50/100")
    _end(plan, "listed", 30, reason)
    assert (row(plan, "listed")["state"], row(plan, "listed")["draws"]) == ("sampled", said)
    another = _ask(plan, "listed", "draws: 100, stop: {max_r_hat: 1.02}")
    assert row(another, "listed")["state"] == "stopped"


QUEUED = {
    "PENDING||Resources|{}|rule_sample_wildcards_listed_group-000": ("queued: Resources", "-"),
    "RUNNING|n3|None|{}|rule_sample_wildcards_listed_group-000": ("warming up", "n3"),
    "RUNNING|n3|None|{}|rule_diagnose_wildcards_listed": ("running diagnose", "n3"),
}


@pytest.mark.parametrize("line", QUEUED)
def test_a_job_in_the_queue_is_the_state(plan: Plan, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    jobs = parse_queue(line.format("/here"), ["listed"], Path("/here"))
    monkeypatch.setattr(status, "read_queue", lambda *_: Queue(jobs))
    found = row(plan, "listed")
    assert (found["state"], found["where"]) == QUEUED[line]


def test_a_job_that_failed_for_good_is_named_with_its_error(plan: Plan) -> None:
    fetch = plan.job("fetch", "begun")
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


def test_looking_changes_nothing(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=90)
    root = Path(plan.results).parent
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    status_table(plan)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
