"""The page: every section present and absent, escaping, prominence of failures, self-containedness."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bayesmesh.analyses.averaging.analysis import Averaging
from bayesmesh.config.blocks import ReportSettings
from bayesmesh.errors import StoreError
from bayesmesh.report.page import write_page
from bayesmesh.report.provenance import Project, describe_commit, describe_project
from bayesmesh.store.arrays import open_group
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.jobs import read_record, record_file
from bayesmesh.workflow.components import requested_analyses
from recording import record_as

Minimal = Callable[..., ExperimentLayout]

ATTACK = "<script>alert('$x$')</script><img src=x onerror=alert(1)>"


ANALYSES = ("averaging", "recommendation")


def write(
    layout: ExperimentLayout, manifest: Path | None = None, title: str = "A title", caption: str = "",
    analyses: tuple[str, ...] = ANALYSES,
) -> str:  # fmt: skip
    config = {"title": title, "report": {"caption": caption}} | {name: {} for name in analyses}
    asked = requested_analyses({name: {} for name in analyses}, Path("some.yaml"))
    path = write_page(layout, config, title, caption, manifest, ReportSettings(num_traces=2), analyses=asked)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole_page(_complete: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page with every section, written once for the tests that only read it."""
    results = tmp_path_factory.mktemp("whole") / "results"
    shutil.copytree(_complete, results)
    manifest = results / "data" / "digits" / "sharded.json"
    return write(ExperimentLayout(results, "everything"), manifest, caption="What it is about.")


def without_drawings(layout: ExperimentLayout) -> ExperimentLayout:
    """Remove the draws, from which most panels are drawn: they take most of the time of a page."""
    shutil.rmtree(layout.posterior)
    open_group(layout.posterior, "w")
    return layout


def text_of(page: str) -> str:
    shown = re.sub(r"<(script|style)>.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", shown)))


def test_page_has_every_section_in_the_order_of_the_flow(whole_page: str) -> None:
    page = whole_page
    order = [
        "verdict",
        "learned",
        "gates",
        "convergence",
        "averaging",
        "recommendation",
        "repeat",
        "time",
        "program",
        "data",
        "configuration",
        "origin",
    ]
    positions = [page.index(f'id="{name}"') for name in order]
    assert positions == sorted(positions)
    assert page.count('class="card"') == 2
    assert page.count("<svg") == 1 + 2 * 2 + 2 + 2 + 3 + 3 + 4 + 1
    assert "What it is about." in page
    assert "5f1c0a9e7b42" in page
    assert "NVIDIA H200" in page


@pytest.mark.parametrize("name", ["verdict", "summary"])
def test_page_needs_verdict_and_summary(minimal: Minimal, name: str) -> None:
    layout = minimal()
    getattr(layout, name).unlink()
    with pytest.raises(StoreError, match=getattr(layout, name).name):
        write(layout)
    assert not layout.page.exists()


def test_what_comes_from_configuration_and_data_is_escaped(complete: ExperimentLayout, demo: SimpleNamespace) -> None:
    demo.write_recommendations(complete, first_title=ATTACK)
    page = write(without_drawings(complete), title=ATTACK, caption=ATTACK)
    assert page.count("<script") == 1, "that of the page"
    assert "<img src=x" not in page
    assert page.count(html.escape(ATTACK, quote=False).split("alert")[0]) >= 5


def test_only_the_script_of_the_page_may_run(whole_page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", whole_page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(whole_page)
    assert "default-src 'none'" in html.unescape(whole_page)


def test_page_needs_nothing_beside_it(whole_page: str) -> None:
    page = whole_page
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", page)
    assert "@import" not in page
    tables = {"diagnostics/summary.csv", "diagnostics/verdict.json", "ledger.csv", "averaging/scores.csv"}
    tables |= {f"recommendations/{name}.csv" for name in ("top", "genres", "users", "scores")}
    tables |= {f"recommendations/{name}.csv" for name in ("differences", "activity", "calibration", "new_users")}
    assert set(re.findall(r'href="([^"#]*)', page)) == {"data:,", "../index.html", "", *tables}


def test_the_box_says_how_the_run_was_made_and_how_to_repeat_it(complete: ExperimentLayout) -> None:
    record_as(complete.results, complete.experiment, "diagnose", [complete.verdict])
    manifest = complete.results / "data" / "digits" / "sharded.json"
    locks = {"envs/cuda.txt": "1f2e", "envs/cpu.txt": "3d4c"}
    project = Project("abc123 with changes", locks, bootstrap=True, repository="https://host.example/a.git")
    config = {"sampling": {"seed": 77}, "data": {"files": ["data/a.csv"]}}
    path = write_page(complete, config, "T", "", manifest, ReportSettings(num_traces=1), project)
    page = path.read_text(encoding="utf-8")
    box = text_of(page[page.index('id="repeat"') : page.index('id="time"')])
    record = read_record(record_file(complete.results, complete.experiment, "diagnose"))
    for said in (
        "snakemake --cores all everything",
        "git clone https://host.example/a.git project cd project git checkout abc123",
        "Place the data at data/a.csv",
        "Files differed from this commit",
        "With Python 3.12.1, install the locked packages: tools/bootstrap.sh cuda",
        "sha256 of envs/cuda.txt 1f2e",
        "jaxlib 0.11.0",
        "abc123 with changes",
        "Seed 77",
        record.written_at,
        record.machine,
        "sha256:9d1f",
    ):
        assert said in box
    complete.settings.write_text("title: T")
    page = write(complete)
    assert "run from Python" in page
    assert 'class="command"' not in page


def test_the_commit_is_that_of_the_project(tmp_path: Path) -> None:
    assert describe_commit(tmp_path) == ""
    (tmp_path / "config.yaml").write_text("experiments: []")
    for command in (
        ["init", "-q"],
        ["add", "config.yaml"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    (tmp_path / "within").mkdir()
    (tmp_path / "within" / "config.yaml").write_text("experiments: []")
    assert describe_commit(tmp_path / "within") == "", "a project that lies in another's repository"
    (tmp_path / "within" / "config.yaml").unlink()
    commit = describe_commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", commit)
    (tmp_path / "file").write_text("x")
    assert describe_commit(tmp_path) == f"{commit} with changes", "a new experiment is not in the commit"
    (tmp_path / ".git" / "info" / "exclude").write_text("file\n")
    assert describe_commit(tmp_path) == commit
    subprocess.run(["git", "-C", str(tmp_path), "add", "--force", "file"], check=True)
    assert describe_commit(tmp_path) == f"{commit} with changes"
    (tmp_path / "uv.lock").write_text("")
    assert describe_project(tmp_path).repository == ""
    subprocess.run(
        ["git", "-C", str(tmp_path), "remote", "add", "origin", "https://me:secret@host.example/a/b.git"], check=True
    )
    assert describe_project(tmp_path).repository == "https://host.example/a/b.git"
    subprocess.run(["git", "-C", str(tmp_path), "remote", "set-url", "origin", str(tmp_path)], check=True)
    assert describe_project(tmp_path).repository == "", "a folder is not an address for others"
    (tmp_path / "CITATION.cff").write_text("repository-code: ssh://git:secret@host.example:22/c")
    assert describe_project(tmp_path).repository == "ssh://git@host.example:22/c"
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://host.example/d"')
    assert describe_project(tmp_path).repository == "https://host.example/d"
    assert describe_project(tmp_path).locks == {"uv.lock": hashlib.sha256(b"").hexdigest()}


def test_ids_are_unique(whole_page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', whole_page)
    assert len(ids) == len(set(ids))


def test_page_is_the_same_each_time(complete: ExperimentLayout, whole_page: str) -> None:
    manifest = complete.results / "data" / "digits" / "sharded.json"
    assert write(complete, manifest, caption="What it is about.") == whole_page


def test_a_failed_run_says_what_failed_where_and_what_to_do(minimal: Minimal) -> None:
    page = write(minimal(verdict="fail", value=1.3, message="chains disagree"))
    top = page[: page.index('id="convergence"')]
    assert 'class="verdict fail"' in top
    for phrase in (
        "This run failed 1 of 1 gates (R-hat)",
        "1.3000",
        "logits[0]",
        "Chains disagree.",
        "longer warmup",
        "reparametrise",
    ):
        assert phrase in text_of(top)


def test_a_missing_chunk_is_an_error_that_names_the_array(complete: ExperimentLayout) -> None:
    shutil.rmtree(complete.posterior / "summaries" / "logits" / "c")
    with pytest.raises(StoreError, match="summaries/logits"):
        write(complete)


@pytest.mark.parametrize("damage", ["{", "[1]", '{"verdict": "pass"}', '{"verdict": "good", "gates": []}'])
def test_a_damaged_verdict_is_an_error_that_names_the_file(minimal: Minimal, damage: str) -> None:
    layout = minimal()
    layout.verdict.write_text(damage, encoding="utf-8")
    with pytest.raises(StoreError, match=re.escape(str(layout.verdict))):
        write(layout)


@pytest.mark.parametrize("returned", ["nothing", "text"])
def test_a_section_that_fails_is_shown_as_failed_and_takes_nothing_with_it(
    complete: ExperimentLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, returned: str
) -> None:
    def section(self: Averaging, files: object) -> object:
        return {}["<b>"] if returned == "nothing" else "a text"

    monkeypatch.setattr(Averaging, "section", section)
    page = write(without_drawings(complete))
    said = "KeyError: &#39;&lt;b&gt;&#39; (test_page.py" if returned == "nothing" else "returned str, not Section"
    shown = page[page.index('<h2 id="averaging"') : page.index('<h2 id="recommendation"')]
    assert said in shown
    assert "section.py" in shown
    assert said in page[: page.index("<h2 id=")], "beside the verdict"
    assert "Held-out films" in page
    assert "error: the section of analysis 'averaging' of everything failed" in caplog.text


def test_a_damaged_file_of_a_section_ends_the_job(complete: ExperimentLayout) -> None:
    (complete.folder / "averaging" / "scores.csv").write_text("num_draws\nten\n")
    with pytest.raises(StoreError, match=r"scores\.csv"):
        write(without_drawings(complete))
