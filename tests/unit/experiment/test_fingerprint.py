"""Fingerprints follow imports, and nothing but imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.experiment import fingerprint as module
from bayesmesh.experiment.fingerprint import ROOT, fingerprint, imported_modules, source_closure


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in which a imports b imports c, and d stands alone."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name, text in {
        "__init__": "", "a": "from bayesmesh import b\nimport numpy\n", "b": "def f():\n    import bayesmesh.part.c\n",
        "part/__init__": "", "part/c": "from bayesmesh.a import x\nfrom bayesmesh.experiment.e import y\n", "d": "",
        "experiment/__init__": "", "experiment/e": "from bayesmesh import d\n",
    }.items():  # fmt: skip
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    imported_modules.cache_clear()
    yield tmp_path
    imported_modules.cache_clear()


def _names(root: Path, files: list[Path]) -> list[str]:
    return [str(f.relative_to(root)) for f in files]


def test_the_closure_follows_imports_round_circles_and_leaves_configuration_out(package: Path) -> None:
    closure = source_closure([package / "a.py"])
    assert _names(package, closure) == ["__init__.py", "a.py", "b.py", "part/__init__.py", "part/c.py"]
    assert source_closure([package / "d.py"]) == [package / "d.py"]


def test_the_closure_can_stay_in_packages(package: Path) -> None:
    closure = source_closure([package / "b.py"], only=("bayesmesh.part",))
    assert _names(package, closure) == ["b.py", "part/__init__.py", "part/c.py"]


def test_a_fingerprint_is_of_names_and_contents_and_nothing_else(package: Path, tmp_path: Path) -> None:
    files = [package / "a.py", package / "b.py"]
    before = fingerprint(files)
    assert len(before) == 16
    assert fingerprint(files) == before
    (package / "d.py").write_text("x = 1\n")
    assert fingerprint(files) == before
    (package / "b.py").write_text((package / "b.py").read_text() + "# more\n")
    assert fingerprint(files) != before
    (package / "b2.py").write_text((package / "b.py").read_text())
    assert fingerprint([package / "a.py", package / "b2.py"]) != fingerprint(files)


def test_what_the_stages_run_is_in_their_closures() -> None:
    sample = _names(ROOT, source_closure([ROOT / "stages" / "sample.py"]))
    assert {"sampling/program.py", "store/segments.py", "stages/context.py", "data/shards.py"} <= set(sample)
    assert not [
        f for f in sample if f.startswith(("experiment/", "report/", "diagnostics/", "averaging/", "recommend/"))
    ]
    report = _names(ROOT, source_closure([ROOT / "stages" / "report.py"]))
    assert not [f for f in report if f.startswith(("sampling/", "models/", "kernels/", "data/"))]
    diagnose = _names(ROOT, source_closure([ROOT / "stages" / "diagnose.py"]))
    assert not [f for f in diagnose if f.startswith(("sampling/", "models/", "kernels/", "data/", "report/"))]


def test_components_of_others_are_in_no_closure() -> None:
    for stage in (ROOT / "stages").glob("*.py"):
        names = _names(ROOT, source_closure([stage]))
        assert not {"models/gaussian.py", "kernels/hmc.py", "kernels/chees.py", "data/sources/films.py"} & set(names)
