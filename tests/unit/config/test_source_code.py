"""The digest of a component is that of the syntax of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.registry import component_path
from bayesmesh.config.source_code import PACKAGE_ROOT, code_digest, component_code
from bayesmesh.errors import ConfigError

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
def test_a_digest_is_of_syntax(tmp_path: Path, change: tuple[str, str], is_other: bool) -> None:
    path = tmp_path / "one.py"
    path.write_text(TEXT)
    before = code_digest([path])
    assert change[0] in TEXT
    path.write_text(TEXT.replace(*change))
    assert (code_digest([path]) != before) == is_other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "for i in x:\n  for j in y:\n    f()\n  else:\n    g()\n",
            "for i in x:\n  for j in y:\n    f()\nelse:\n  g()\n",
        ),
        ("f(g(a), b)", "f(g(a, b))"),
        ("a - (b - c)", "a - b - c"),
        ("def f(a, /, b): g()", "def f(a, b, /): g()"),
    ],
)
def test_the_same_parts_in_another_place_are_another_syntax(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "one.py").write_text(one)
    before = code_digest([tmp_path / "one.py"])
    (tmp_path / "one.py").write_text(other)
    assert code_digest([tmp_path / "one.py"]) != before


def test_deeply_nested_syntax_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = " + " + ".join(["1"] * 2000))
    assert len(code_digest([tmp_path / "one.py"])) == 16


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a module beside its configuration, a folder, and a package."""
    for name in (
        "alone.py", "other.py", "folder/model.py", "folder/parts.py", "folder/below/more.py", "study/__init__.py",
        "study/models.py", "study/parts/scales.py", "study/notes.txt", "site-packages/single.py", "site-packages/more.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("component", "files"),
    [
        ("alone.py", ["alone.py"]),
        ("folder/model.py", ["folder/model.py", "folder/parts.py"]),
        ("study/models.py", ["study/__init__.py", "study/models.py", "study/parts/scales.py"]),
        ("site-packages/single.py", ["site-packages/single.py"]),
    ],
)
def test_the_code_of_a_users_component_is_the_files_of_its_folder(
    project: Path, component: str, files: list[str]
) -> None:
    assert [path.relative_to(project).as_posix() for path in component_code(project / component)] == files


def test_the_code_of_a_component_of_the_package_is_its_file_or_its_folder() -> None:
    def names(kind: str, name: str) -> set[str]:
        return {path.relative_to(PACKAGE_ROOT).as_posix() for path in component_code(component_path(kind, name))}

    assert names("kernel", "hmc") == {"kernels/hmc.py"}
    assert {"models/glm/model.py", "models/glm/__init__.py"} < names("model", "glm")
    assert {"analyses/averaging/analysis.py", "analyses/averaging/section.py"} < names("analysis", "averaging")


def test_where_the_files_lie_does_not_count_but_their_names_do(project: Path) -> None:
    before = code_digest([project / "folder/model.py"])
    (project / "folder").rename(project / "moved")
    assert code_digest([project / "moved/model.py"]) == before
    (project / "moved/parts.py").rename(project / "moved/pieces.py")
    assert code_digest([project / "moved/model.py"]) != before


@pytest.mark.parametrize(
    ("content", "problem"), [(b"def (\n", "line 1: invalid Python"), (b"x = 1\n# \xff\n", "line 2: not UTF-8")]
)
def test_a_file_that_is_not_python_is_named(project: Path, content: bytes, problem: str) -> None:
    (project / "folder/parts.py").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"folder/parts\.py, {problem}"):
        code_digest([project / "folder/model.py"])
