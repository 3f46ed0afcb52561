"""A job runs the code that was planned, or says which file was edited."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.planning import planned_code
from bayesmesh.planning.plan_fingerprints import stage_fingerprint
from bayesmesh.planning.plan_specs import StageSpec, make_spec
from bayesmesh.planning.planned_code import PlannedCode

MODEL = """
import bayesmesh.models.base
import edited_parts
from bayesmesh.config.settings import Settings


class Options(Settings):
    pass


class Own(bayesmesh.models.base.Model):
    scale = edited_parts.SCALE
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that a user's model imports."""
    (tmp_path / "edited_model.py").write_text(MODEL)
    path = tmp_path / "edited_parts.py"
    path.write_text("SCALE = 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("edited_parts", None)
    planned_code._fingerprinted.clear()


def _spec() -> StageSpec:
    config = {
        "title": "Own", "data": {"source": "digits"}, "model": {"name": "edited_model:Own"}, "kernel": {"name": "hmc"},
    }  # fmt: skip
    return make_spec("sample", "own", experiment_class().model_validate(config), "results")


def _load() -> ModuleType:
    sys.modules.pop("edited_parts", None)
    return importlib.import_module("edited_parts")


def _edit(path: Path, *, is_put_back: bool = False) -> None:
    before = path.read_text()
    path.write_text("SCALE = 30.0\n")
    if is_put_back:
        path.write_text(before)


def test_code_edited_after_planning_is_refused_until_it_is_put_back(parts: Path) -> None:
    spec, before = _spec(), parts.read_text()
    planned = stage_fingerprint(spec)
    _edit(parts)
    with pytest.raises(ConfigError, match=rf"the code of sample is not what .* last was {parts}"):
        PlannedCode(spec, planned)
    assert PlannedCode(spec, "").fingerprint == stage_fingerprint(spec) != planned
    parts.write_text(before)
    assert PlannedCode(spec, planned).fingerprint == planned


def test_comments_are_not_other_code(parts: Path) -> None:
    planned = stage_fingerprint(_spec())
    parts.write_text("# The scale.\nSCALE = 1.0\n")
    assert PlannedCode(_spec(), planned).fingerprint == planned
    assert _load().SCALE == 1.0


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_module_edited_before_the_job_loads_it_is_refused(parts: Path, is_put_back: bool) -> None:
    PlannedCode(_spec(), "").check()
    _edit(parts, is_put_back=is_put_back)
    with pytest.raises(ConfigError, match=rf"{parts}: was edited"):
        _load()
    PlannedCode(_spec(), "")
    scale = 1.0 if is_put_back else 30.0
    assert scale == _load().SCALE


def test_a_module_loaded_before_its_fingerprint_was_taken_must_be_the_same(parts: Path) -> None:
    before = parts.read_text()
    _edit(parts)
    assert _load().SCALE == 30.0
    parts.write_text(before)
    with pytest.raises(ConfigError, match=rf"{parts}: was edited"):
        PlannedCode(_spec(), stage_fingerprint(_spec()))


def test_a_module_that_no_load_was_noted_of_must_be_older_than_the_process(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load()
    monkeypatch.delitem(planned_code._loaded, str(parts))
    with pytest.raises(ConfigError, match=rf"{parts}: was edited"):
        PlannedCode(_spec(), "")
    monkeypatch.setattr(planned_code, "process_started", lambda: parts.stat().st_ctime + 1.0)
    PlannedCode(_spec(), "")


def test_loaded_modules_may_be_edited_while_the_job_runs(parts: Path) -> None:
    code = PlannedCode(_spec(), stage_fingerprint(_spec()))
    _load()
    _edit(parts)
    code.check()


def test_a_template_edited_while_the_job_runs_is_refused(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = parts.with_name("page.html")
    page.write_text("<p>")
    monkeypatch.setattr(planned_code, "stage_files", lambda _: [parts, page])
    code = PlannedCode(_spec(), "")
    code.check()
    page.write_text("<p>")
    with pytest.raises(ConfigError, match=rf"{page}: was edited"):
        code.check()
