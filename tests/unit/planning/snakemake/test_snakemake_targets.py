"""A target that nothing makes is refused with the nearest name; rules and files stay Snakemake's business."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.api import Workflow

from bayesmesh.planning.snakemake import snakemake_targets as module


class Prepared(Exception):
    """The original was called."""


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def original(self: object, **options: object) -> None:
        raise Prepared

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_prepare", original)
    monkeypatch.setattr(Workflow, "_prepare_dag", original)
    module.refuse_unknown_targets(["digits", "films"])

    def run(*targets: str) -> None:
        rule = SimpleNamespace(is_producer=lambda name: name == "table")
        settings = SimpleNamespace(targets=set(targets))
        found = SimpleNamespace(dag_settings=settings, is_rule=lambda name: name in ("all", "digits"), rules=[rule])
        Workflow._prepare_dag(found, forceall=False)

    return run


@pytest.mark.parametrize("target", ["all", "digits", "table", "results/nowhere/report.html", "Makefile", "present"])
def test_rules_files_and_paths_go_on(prepare, target: str) -> None:
    for name in ("present", "Makefile"):
        Path(name).touch()
    with pytest.raises(Prepared):
        prepare(target)


def test_an_unknown_name_ends_with_the_nearest(prepare, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        prepare("digits", "digit")
    assert ended.value.code == 2
    assert "no experiment, sweep or rule 'digit'" in (said := capsys.readouterr().err)
    assert "did you mean 'digits'?" in said


@pytest.mark.parametrize("target", ["Digits", "digits.yaml", "config/experiments/digits.yaml"])
def test_a_file_of_an_experiment_means_its_name(prepare, capsys: pytest.CaptureFixture[str], target: str) -> None:
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.unlink() if target == "Digits" else None
    with pytest.raises(SystemExit) as ended:
        prepare(target)
    assert ended.value.code == 2
    assert f"no experiment, sweep or rule '{target}'\n  remedy: write digits" in capsys.readouterr().err


def test_a_folder_is_no_target_and_all_unknown_ones_are_named(prepare, capsys: pytest.CaptureFixture[str]) -> None:
    Path("data").mkdir()
    with pytest.raises(SystemExit):
        prepare("data", "flims")
    said = capsys.readouterr().err
    assert "no experiment, sweep or rule 'data', 'flims'" in said
    assert "valid: digits, films" in said
