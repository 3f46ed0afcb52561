"""Find and parse source files without importing them, and compute the digest of the files of a component."""

from __future__ import annotations

import ast
import collections
import functools
import hashlib
import io
import os
import sys
import tokenize
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from bayesmesh.errors import ConfigError

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "bayesmesh"
INSTALLED = {"site-packages", "dist-packages"}


def python_path() -> list[Path]:
    """Return the folders to search for a user's module, the current one first."""
    return list(dict.fromkeys([Path.cwd(), *(Path(entry).absolute() for entry in sys.path)]))


def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a source file.

    Raises:
        ConfigError: it is not valid Python.
    """
    return _parse(path, path.read_bytes())


@functools.cache
def _parse(path: Path, content: bytes) -> ast.Module:
    try:
        # Python itself accepts other bytes in comments, but then cannot show the lines of the file.
        content.decode(tokenize.detect_encoding(io.BytesIO(content).readline)[0])
        return ast.parse(content, filename=str(path))
    except SyntaxError as error:
        where = f"{path}, line {error.lineno}" if error.lineno else str(path)
        raise ConfigError(f"{where}: invalid Python: {error.msg}", "correct the line") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text", "save the file as UTF-8, or name its encoding in the first line") from error  # fmt: skip


def file_in(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file of a module, or of a package, below a folder; None if there is neither."""
    place = os.path.join(folder, *parts)
    candidates = [f"{place}.py", os.path.join(place, "__init__.py")] if parts else [os.path.join(place, "__init__.py")]
    return next((Path(candidate) for candidate in candidates if os.path.isfile(candidate)), None)


def code_digest(components: Iterable[Path]) -> str:
    """Return a digest of the files of components, 16 hexadecimal digits; where a user's files lie does not count.

    Args:
        components: the file of each.

    Raises:
        ConfigError: a file is not valid Python.
    """
    lines = {
        f"{file.relative_to(component.parent)} {_syntax_digest(file, file.read_bytes())}"
        for component in components
        for file in component_code(component)
    }
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def component_code(component: Path) -> list[Path]:
    """Return the Python files that count as the code of a component: its own, or all files of its folder.

    A component of this package has a folder if it is in ``model.py`` or ``analysis.py``. A user's has one unless it lies in the
    current folder, beside ``config/``; the folder of a package includes those below it.
    """
    folder = component.parent
    if component.is_relative_to(PACKAGE_ROOT):
        return sorted(folder.rglob("*.py")) if component.stem in ("model", "analysis") else [component]
    if folder == Path.cwd() or folder.name in INSTALLED:
        return [component]
    return sorted(folder.rglob("*.py") if (folder / "__init__.py").is_file() else folder.glob("*.py"))


@functools.cache
def _syntax_digest(path: Path, content: bytes) -> str:
    return syntax_digest(_parse(path, content))


def syntax_digest(tree: ast.Module) -> str:
    """Return the sha256 of a syntax tree without its docstrings; comments and layout are not in it.

    >>> syntax_digest(ast.parse("x = 1  # one")) == syntax_digest(ast.parse("'Text.'\\n\\nx = (1)"))
    True
    """
    parts: list[str] = []
    # Level by level, because expressions may be nested more deeply than calls.
    nodes = collections.deque[ast.AST]([tree])
    while nodes:
        node = nodes.popleft()
        parts.append(type(node).__name__)
        for name, value in ast.iter_fields(node):
            parts.append(name)
            for each in value if isinstance(value, list) else [value]:
                if not isinstance(each, ast.AST):
                    parts.append(repr(each))
                elif name != "body" or not _is_text(each):
                    parts.append("")
                    nodes.append(each)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    """Return whether a node is a docstring, or another string that is a statement of its own."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def columns_called(name: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a name in a parsed expression may stand for, usually one.

    Python's parser returns names in the normal form NFKC (Unicode Standard Annex 31), in which the micro sign is the
    Greek letter mu.

    >>> [ascii(each) for each in columns_called("\u03bcg", ["\u00b5g", "mg"])]
    ["'\\\\xb5g'"]
    >>> columns_called("x2", ["x\u00b2", "x2"]), columns_called("y", ["x"])
    (['x2'], [])
    """
    return [
        column
        for column in columns
        if column == name or (column.isidentifier() and unicodedata.normalize("NFKC", column) == name)
    ]
