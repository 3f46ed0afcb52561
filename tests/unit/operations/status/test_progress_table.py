"""status: one line per experiment, at every point of its life."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.diagnostics.verdict import GateResult, NumCoordinates, Verdict, write_verdict
from bayesmesh.operations.status import progress_table, status_table
from bayesmesh.planning.plan import Plan
from bayesmesh.report.fit_badge import FitBadge, read_fit
from bayesmesh.report.report_page import render
from bayesmesh.running.slurm.queue import Queue, parse_queue
from bayesmesh.store.lock import LOCK_NAME, STALE_BEATS, WriterLock
from bayesmesh.store.stored_segments import ChainStore
from resealing import seal_as

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
    _seal(plan, name, "diagnose", plan.layout(name).verdict)


def _seal(plan: Plan, name: str, stage: str, *outputs: Path) -> None:
    """Seal results as made with the configuration."""
    made_with = {"specification": plan.specification(stage, name).digest, "code": plan.code_of_stage(stage, name)}
    seal_as(Path(plan.results), name, stage, outputs, **made_with)


def row(plan: Plan, name: str, now: float = NOW) -> dict[str, str]:
    """The cells of an experiment's line, by column."""
    lines = status_table(plan, now).splitlines()
    starts = [lines[0].index(title) for title in progress_table.HEADER]
    (line,) = [line for line in lines if line.startswith(name + " ")]
    cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(progress_table.HEADER, cells, strict=True))


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


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(
    plan: Plan, sample: Callable[..., ChainStore]
) -> None:
    commits = sample().folder / "commits"
    commits.rename(commits.with_name("elsewhere"))
    commits.touch()
    assert row(plan, "listed")["state"] == "unreadable"
    assert f"listed: {commits}: Not a directory" in status_table(plan)


def test_what_may_not_be_read_stays_in_its_row(
    plan: Plan, sample: Callable[..., ChainStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = sample().folder / "commits" / "sample-000000020-000000030.json"
    _finish(plan, "other", 1.0)
    open_file = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if os.fspath(path) == str(marker):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    assert (row(plan, "listed")["state"], row(plan, "other")["state"]) == ("unreadable", "pass")
    assert f"listed: {marker}: Permission denied\n  remedy: check the permissions" in status_table(plan)


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


def test_draws_that_are_not_in_their_place_yet_are_left_out(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    store = sample()
    stats = {"sample_stats": {"lp": np.zeros((SEGMENT, 2))}}
    facts = {"acceptance": 0.8, "committed_at": NOW, "count": SEGMENT, "seconds": 1.0}
    store.commit("sample", 30, stats, {"q": np.zeros(2)}, facts, is_final=False)
    found = row(plan, "listed")
    assert found["draws"] == "20/100"
    assert found["R-hat"].startswith(("~1.", "~0.9"))


def test_warmup_is_counted_by_itself(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    _lock(sample(draws=0).folder, NOW)
    found = row(plan, "listed")
    assert (found["state"], found["draws"], found["left"]) == ("warming up", "10/20 warmup", "-")


def test_without_a_lock_nobody_is_at_work(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    sample()
    found = row(plan, "listed")
    assert (found["state"], found["left"]) == ("stopped", "-")


def test_a_lock_says_who_is_at_work_and_whether_it_lives(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    _lock(sample().folder, NOW + 50)
    assert row(plan, "listed", NOW + 60)["where"] == "a card on node7"
    assert row(plan, "listed", NOW + 60)["state"] == "sampling"
    assert row(plan, "listed", NOW + 50 + 5 * STALE_BEATS)["state"] == "stale lock"


def test_a_clock_that_was_set_back_is_said_and_revives_nobody(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    store = sample()
    assert row(plan, "listed", NOW - 1000)["last commit"] == "16 min ahead of this clock"
    _lock(store.folder, NOW)
    assert row(plan, "listed", NOW - 2)["state"] == "sampling"
    assert row(plan, "listed", NOW - 1000)["state"] == "stale lock"


def test_a_process_of_this_machine_is_looked_up(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    folder = sample().folder
    code = "import sys, pathlib\nfrom bayesmesh.store.lock import WriterLock\nWriterLock(pathlib.Path(sys.argv[1])).__enter__()\nprint()\nsys.stdout.flush()\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # Its heartbeat does not matter here.
        os.utime(folder / LOCK_NAME, (NOW - 1000, NOW - 1000))
        assert row(plan, "listed")["state"] == "sampling"
        process.kill()
    os.utime(folder / LOCK_NAME, (NOW, NOW))
    assert row(plan, "listed")["state"] == "stale lock"


@pytest.mark.parametrize("content", [b"", b"x", b"\xff", b"[]", b'{"host": 3}'])
def test_a_damaged_lock_is_that_of_an_unknown_owner(
    plan: Plan, sample: Callable[..., ChainStore], content: bytes
) -> None:
    path = sample().folder / LOCK_NAME
    path.write_bytes(content)
    os.utime(path, (NOW, NOW))
    found = row(plan, "listed")
    assert (found["state"], found["draws"], found["where"]) == ("sampling", "15/100", "a card on an unknown host")
    assert row(plan, "listed", NOW + 60)["state"] == "stale lock"
    with WriterLock(path.parent, heartbeat_seconds=0.02):
        assert row(plan, "listed")["state"] == "sampling", "it is taken over, and the draws are kept"


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


def test_more_draws_are_wanted_than_were_sampled(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=100)
    _end(plan, "listed", 100)
    _finish(plan, "listed", 1.0)
    assert row(plan, "listed")["state"] == "pass"
    more = _ask(plan, "listed", "draws: 200")
    assert (row(more, "listed")["state"], row(more, "listed")["draws"]) == ("stopped", "100/200")
    fewer = _ask(plan, "listed", "draws: 50")
    assert row(fewer, "listed")["state"] == "sampled", "the verdict is about more draws"


def test_a_verdict_about_other_chains_is_not_shown(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=100)
    _end(plan, "listed", 100)
    _finish(plan, "listed", 1.0)
    about = plan.layout("listed").posterior / "zarr.json"
    about.parent.mkdir()
    for identity, state in (("0" * 16, "pass"), ("1" * 16, "sampled")):
        about.write_text(json.dumps({"attributes": {"identity": identity}}))
        _seal(plan, "listed", "assemble", about.parent)
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


def test_a_verdict_without_record_is_not_taken_for_true(plan: Plan) -> None:
    _finish(plan, "listed", 1.0)
    (Path(plan.results) / "seals" / "listed" / "diagnose.json").unlink()
    assert row(plan, "listed")["state"] == "damaged"
    assert "no record of the job that wrote it" in status_table(plan)


def test_a_verdict_of_other_settings_is_marked(plan: Plan) -> None:
    _finish(plan, "listed", 1.0)
    assert row(plan, "listed")["state"] == "pass"
    path = plan.config / "experiments" / "listed.yaml"
    path.write_text(path.read_text() + "gates: {r_hat: 1.5}\n")
    other = Plan(str(plan.config), plan.results)
    assert row(other, "listed")["state"] == "pass, older"
    assert "listed: older than the configuration, its code or its inputs: diagnose" in status_table(other)


def test_a_new_caption_makes_no_result_older(plan: Plan) -> None:
    _finish(plan, "listed", 1.0)
    layout = plan.layout("listed")
    layout.page.write_text("<html>")
    layout.ledger.write_text("")
    _seal(plan, "listed", "report", layout.page, layout.ledger)
    path = plan.config / "experiments" / "listed.yaml"
    path.write_text(path.read_text() + "report: {caption: A new caption.}\n")
    found = row(Plan(str(plan.config), plan.results), "listed")
    assert (found["state"], found["fit"]) == ("pass", "not checked")


def test_a_refuted_model_and_doubts_about_the_draws_are_shown(plan: Plan) -> None:
    _finish(plan, "listed", 5.9e15)
    layout, fit = plan.layout("listed"), FitBadge("fail", "✗ refuted", ("Two estimates <differ>.",))
    layout.page.write_text(render("base.html", title="page", stored_fit=fit.stored()))
    layout.ledger.write_text("")
    _seal(plan, "listed", "report", layout.page, layout.ledger)
    assert read_fit(layout.page) == fit
    found = row(plan, "listed")
    assert (found["state"], found["fit"], found["R-hat"]) == ("pass", "refuted", "> 100")
    assert "listed: Two estimates <differ>." in status_table(plan)


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


def test_a_manifest_that_was_written_last_names_the_chains(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for identity, draws in (("a" * 16, 100), ("b" * 16, 30)):
        for group in (0, 1):
            sample(group=group, draws=draws, identity=identity)
    assert row(plan, "listed")["draws"] == "30/100"
    _end(plan, "listed", 100, identity="a" * 16)
    assert (row(plan, "listed")["state"], row(plan, "listed")["draws"]) == ("sampled", "100/100")


def test_groups_of_an_earlier_configuration_do_not_count(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1, 7):
        sample(group=group, draws=30)
    assert row(plan, "listed")["draws"] == "30/100"


def test_the_identity_that_was_written_last_counts(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for identity, draws, age in (("a" * 16, 50, 0), ("b" * 16, 30, 100)):
        folder = sample(draws=draws, identity=identity).folder
        for path in (folder / "commits", folder / "store.json"):
            os.utime(path, (NOW - age, NOW - age))
    assert row(plan, "listed")["draws"] == "25/100"


QUEUED = {
    "PENDING||Resources|{}|rule_sample_wildcards_listed_group-000": ("queued: Resources", "-"),
    "RUNNING|n3|None|{}|rule_sample_wildcards_listed_group-000": ("warming up", "n3"),
    "RUNNING|n3|None|{}|rule_diagnose_wildcards_listed": ("running diagnose", "n3"),
}


@pytest.mark.parametrize("line", QUEUED)
def test_a_job_in_the_queue_is_the_state(plan: Plan, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    jobs = parse_queue(line.format("/here"), ["listed"], Path("/here"))
    monkeypatch.setattr(progress_table, "read_queue", lambda *_: Queue(jobs))
    found = row(plan, "listed")
    assert (found["state"], found["where"]) == QUEUED[line]


def test_the_table_says_so_in_one_line(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "queue" not in status_table(plan)
    monkeypatch.setattr(progress_table, "read_queue", lambda *_: Queue(failure="squeue did not answer in 1 s"))
    assert "\n\nqueue: squeue did not answer in 1 s\n\nreport: " in status_table(plan)
