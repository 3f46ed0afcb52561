"""A file of an experiment that is not valid stops no verb that concerns others, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.cli import main

GOOD = "title: A\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a valid experiment and four that are not, and the current one."""
    folder = tmp_path / "config" / "experiments"
    folder.mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [good]\n")
    for name in ("good", "Bad Name", "all"):
        (folder / f"{name}.yaml").write_text(GOOD)
    (folder / "wrong.yaml").write_text(f"{GOOD}smapling: {{}}\n")
    (folder / "other.yml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_gc_keeps_the_chains_of_a_file_that_is_not_valid(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("wrong", "wrong-seed-1", "wronger"):
        (project / "results" / name / "chains" / "0123456789abcdef").mkdir(parents=True)
    assert main(["gc", "--yes"]) == 0
    said = capsys.readouterr().out
    for name in ("wrong", "wrong-seed-1"):
        assert f"{name}: kept, because the file of experiment 'wrong' is not valid" in said
    left = {path.parents[1].name for path in project.glob("results/*/chains/*")}
    assert left == {"wrong", "wrong-seed-1"}, "no file names the third"
