"""Fingerprints follow imports, and nothing but imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bayesmesh.config import config_source_code
from bayesmesh.config.config_source_code import PACKAGE_ROOT, fingerprint, imported_modules, source_closure
from bayesmesh.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in which a imports b imports c, and d stands alone."""
    monkeypatch.setattr(config_source_code, "PACKAGE_ROOT", tmp_path)
    for name, text in {
        "__init__": "", "a": "from bayesmesh import b\nimport numpy\n", "b": "def f():\n    import bayesmesh.part.c\n",
        "part/__init__": "", "part/c": "from bayesmesh.a import x\nfrom bayesmesh.config.e import y\n", "d": "",
        "config/__init__": "", "config/e": "from bayesmesh import d\n",
    }.items():  # fmt: skip
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    imported_modules.cache_clear()
    config_source_code._imports.cache_clear()
    yield tmp_path
    imported_modules.cache_clear()
    config_source_code._imports.cache_clear()


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
    (package / "b.py").write_text((package / "b.py").read_text() + "y = 1\n")
    assert fingerprint(files) != before
    (package / "b2.py").write_text((package / "b.py").read_text())
    assert fingerprint([package / "a.py", package / "b2.py"]) != fingerprint(files)


TEXT = """
class One:
    size = 2

    def double(self, x):
        return x * self.size  # twice
"""


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        (("# twice", "# two times"), False),
        (("\n    def", "\n\n    # A comment.\n    def"), False),
        (("class One:", 'class One:\n    """One."""\n'), False),
        (("        return", '        """Return the double."""\n        return'), False),
        (("size = 2\n", 'size = 2\n    """A number."""\n'), False),
        (("x * self.size", "(\n            x * self.size\n        )"), False),
        (("size = 2", "size = 0b10"), False),
        (("size = 2", "size = 2.0"), True),
        (("size = 2", "size = '2'"), True),
        (("x * self.size", "self.size * x"), True),
        (("def double(self, x)", "def double(self, x=1)"), True),
        (("def double(self, x)", "async def double(self, x)"), True),
        (("        return", '        print("Return the double.")\n        return'), True),
    ],
    ids=lambda v: repr(v[1]) if isinstance(v, tuple) else None,
)
def test_a_fingerprint_is_of_syntax(tmp_path: Path, change: tuple[str, str], is_other: bool) -> None:
    path = tmp_path / "one.py"
    path.write_text(TEXT)
    before = fingerprint([path])
    assert change[0] in TEXT
    path.write_text(TEXT.replace(*change))
    assert (fingerprint([path]) != before) == is_other


def test_statements_in_another_block_are_another_syntax(tmp_path: Path) -> None:
    path, found = tmp_path / "one.py", set()
    for text in (
        "for i in x:\n  for j in y:\n    f()\n  else:\n    g()\n",
        "for i in x:\n  for j in y:\n    f()\nelse:\n  g()\n",
    ):
        path.write_text(text)
        found.add(fingerprint([path]))
    assert len(found) == 2


def test_deeply_nested_syntax_has_a_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("x = " + " + ".join(["1"] * 2000))
    assert len(fingerprint([path])) == 16


def test_a_fingerprint_is_of_all_bytes_of_other_files(tmp_path: Path) -> None:
    path = tmp_path / "style.css"
    path.write_text("p { color: red }\n")
    before = fingerprint([path])
    path.write_text("p { color: red } /* text */\n")
    assert fingerprint([path]) != before


def test_what_the_stages_run_is_in_their_closures() -> None:
    sample = _names(PACKAGE_ROOT, source_closure([PACKAGE_ROOT / "stages" / "sample.py"]))
    assert {"sampling/program.py", "store/stored_segments.py", "stages/stage_inputs.py", "data/shards.py"} <= set(
        sample
    )
    assert not [f for f in sample if f.startswith(("config/", "report/", "figures/", "diagnostics/", "analyses/"))]
    compiled = _names(PACKAGE_ROOT, source_closure([PACKAGE_ROOT / "stages" / "compile.py"]))
    assert not [f for f in compiled if f.startswith(("analyses/", "figures/", "report/", "diagnostics/"))]
    analyse = _names(PACKAGE_ROOT, source_closure([PACKAGE_ROOT / "stages" / "analyse.py"]))
    assert not [f for f in analyse if f.startswith(("analyses/averaging", "analyses/recommendation", "report/"))]
    report = _names(PACKAGE_ROOT, source_closure([PACKAGE_ROOT / "stages" / "report.py"]))
    assert not [f for f in report if f.startswith(("sampling/", "models/", "kernels/", "data/"))]
    diagnose = _names(PACKAGE_ROOT, source_closure([PACKAGE_ROOT / "stages" / "diagnose.py"]))
    assert not [f for f in diagnose if f.startswith(("sampling/", "models/", "kernels/", "data/", "report/"))]


def test_components_of_others_are_in_no_closure() -> None:
    for stage in (PACKAGE_ROOT / "stages").glob("*.py"):
        names = _names(PACKAGE_ROOT, source_closure([stage]))
        assert not {"models/gaussian.py", "kernels/hmc.py", "kernels/chees.py", "data/sources/films.py"} & set(names)


OWN = {
    "own/__init__.py": "from own.constants import ONE\n",
    "own/constants.py": "ONE = 1\n",
    "own/models.py": "import json, numpy\nfrom .parts import prior\nimport sibling\nfrom bayesmesh.models import base\n",
    "own/parts/__init__.py": "",
    "own/parts/prior.py": "from . import scales\nfrom ..shapes import shape\nfrom space.inner import x\n",
    "own/parts/scales.py": "",
    "own/shapes.py": "def f():\n    import own.late\n",
    "own/late.py": "",
    "own/unused.py": "",
    "sibling.py": "import installed, own.models\n",
    "space/inner.py": "",
    "lib/site-packages/installed/__init__.py": "from installed import more\n",
    "lib/site-packages/installed/more.py": "",
    "json.txt": "",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a user beside a module, a folder without __init__.py and an installed package."""
    root = tmp_path / "project"
    for name, text in OWN.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root / "lib" / "site-packages"))
    config_source_code._imports.cache_clear()
    return root


def _own_names(root: Path, entry: str) -> list[str]:
    return [str(f.relative_to(root)) for f in source_closure([root / entry], only=("bayesmesh.nothing",))]


def test_the_closure_of_a_users_file_follows_the_users_own_code(own: Path) -> None:
    assert _own_names(own, "own/models.py") == [
        "own/__init__.py", "own/constants.py", "own/late.py", "own/models.py", "own/parts/__init__.py",
        "own/parts/prior.py", "own/parts/scales.py", "own/shapes.py", "sibling.py", "space/inner.py",
    ]  # fmt: skip
    whole = source_closure([own / "own/models.py"])
    assert PACKAGE_ROOT / "models" / "base.py" in whole
    assert not [f for f in whole if "numpy" in f.parts or f.name == "decoder.py"]


def test_the_closure_of_an_installed_model_stays_in_its_package(own: Path) -> None:
    (own / "lib/site-packages/other").mkdir()
    (own / "lib/site-packages/other/__init__.py").touch()
    (own / "lib/site-packages/installed/__init__.py").write_text("import other\nfrom installed import more\n")
    names = _own_names(own, "lib/site-packages/installed/__init__.py")
    assert [Path(name).name for name in names] == ["__init__.py", "more.py"]


def test_where_a_users_code_lies_does_not_matter_but_what_it_says_does(own: Path, tmp_path: Path) -> None:
    before = fingerprint(source_closure([own / "own/models.py"]))
    elsewhere = tmp_path / "a" / "moved"
    elsewhere.parent.mkdir()
    own.rename(elsewhere)
    os.chdir(elsewhere)
    assert fingerprint(source_closure([elsewhere / "own/models.py"])) == before
    (elsewhere / "own/unused.py").write_text("x = 1\n")
    assert fingerprint(source_closure([elsewhere / "own/models.py"])) == before
    (elsewhere / "own/late.py").write_text("x = 1\n")
    assert fingerprint(source_closure([elsewhere / "own/models.py"])) != before


def test_a_file_that_is_no_python_is_named(own: Path) -> None:
    (own / "own/late.py").write_text("def (\n")
    with pytest.raises(ConfigError, match=r"own/late\.py, line 1: invalid Python"):
        source_closure([own / "own/models.py"])


@pytest.fixture
def next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that ends a process, as far as sources are remembered, and begins the next."""
    ends: list[tuple[object, ...]] = []
    monkeypatch.setattr(config_source_code, "_REMEMBERED", tmp_path / "__pycache__" / "sources.json")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(config_source_code.atexit, "register", lambda *call: ends.append(call))

    def begin() -> None:
        for function, *arguments in ends:
            function(*arguments)
        ends.clear()
        config_source_code._remembered.cache_clear()
        config_source_code._read_source.cache_clear()

    begin()
    yield begin
    ends.clear()
    begin()


def test_a_source_is_parsed_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_process: Callable[[], None]
) -> None:
    path = tmp_path / "some.py"
    path.write_text("import os.path\nfrom . import other  # a comment\n")
    first = config_source_code._read_source(path, path.read_bytes())
    next_process()
    with monkeypatch.context() as patch:
        patch.setattr(config_source_code, "_parse", None)
        assert config_source_code._read_source(path, path.read_bytes()) == first
    path.write_text("import os\n")
    assert config_source_code._read_source(path, path.read_bytes()) != first


@pytest.mark.parametrize("text", ["", "{", "[]", '{"made_by": "another", "sources": {}}', '{"sources": 1}'])
def test_what_was_remembered_otherwise_is_not_used(tmp_path: Path, next_process: Callable[[], None], text: str) -> None:
    path = tmp_path / "some.py"
    path.write_text("X = 1\n")
    config_source_code._REMEMBERED.parent.mkdir()
    config_source_code._REMEMBERED.write_text(text)
    assert config_source_code._read_source(path, path.read_bytes()).imports == []
    next_process()
    assert len(config_source_code._remembered()) == 1
