"""Find the source files that a module runs, its own and all that it imports, and compute their fingerprint.

Configuration code is left out: it can change only the configuration of a stage, which is compared separately. For a
user's own file, imports of the user's own code are followed too, but not installed packages. Files are read as text;
nothing is imported.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import sys
import sysconfig
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.errors import ConfigError
from bayesmesh.files import atomic_path, hash_file

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "bayesmesh"
_LEFT_OUT = ("bayesmesh.config", "bayesmesh.planning", "bayesmesh.cli", "bayesmesh.notebook")
INSTALLED = {"site-packages", "dist-packages"}
_REMEMBERED, _MOST_REMEMBERED = PACKAGE_ROOT / "__pycache__" / "sources.json", 3000


def python_path() -> list[Path]:
    """Return the folders to search for a user's module, the current one first."""
    return list(dict.fromkeys([Path.cwd(), *(Path(entry).absolute() for entry in sys.path)]))


def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a source file.

    Raises:
        ConfigError: it is not valid Python.
    """
    return _parse(path, path.read_bytes())


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
    # Strings, because a thousand files are looked up before the first job, and `Path` takes ten times as long.
    return next((Path(candidate) for candidate in candidates if os.path.isfile(candidate)), None)


# For modules of this package, whose files stay where they are.
_file_once = functools.cache(file_in)


class _Source(NamedTuple):
    """The facts that planning needs about a source file; its syntax tree takes a hundred times as much memory."""

    imports: list[tuple[int, str]]
    digest: str


@functools.cache
def _read_source(path: Path, content: bytes) -> _Source:
    """Parse a file once for both its imports and its digest, and remember them for other processes."""
    known, key = _remembered(), hashlib.sha256(content).hexdigest()
    if key not in known:
        tree = _parse(path, content)
        known[key] = _Source(_list_imports(tree), digest_syntax(tree))
    return known[key]


class _Memory(dict[str, _Source]):
    """Content digest -> imports and syntax digest; `num_saved` of them are in the file."""

    made_by = ""
    num_saved = 0


@functools.cache
def _remembered() -> _Memory:
    """Return content digest -> imports and syntax digest; new entries are saved when the process ends.

    The file is trusted as much as the compiled modules beside it: whoever can write to one can write to the other.
    """
    known = _Memory()
    known.made_by = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        found = json.loads(_REMEMBERED.read_bytes())
        if found["made_by"] == known.made_by:
            known.update(
                {k: _Source([(level, name) for level, name in i], d) for k, (i, d) in found["sources"].items()}
            )
    known.num_saved = len(known)
    atexit.register(save_memory)
    return known


def save_memory() -> None:
    """Save the remembered syntax of source files, if any of it is new and Python may write beside them."""
    known = _remembered()
    # A read-only installation does without.
    with contextlib.suppress(OSError):
        if len(known) > known.num_saved and not sys.dont_write_bytecode:
            recent = dict([*known.items()][-_MOST_REMEMBERED:])
            with atomic_path(_REMEMBERED) as path:
                path.write_text(json.dumps({"made_by": known.made_by, "sources": recent}), encoding="utf-8")
            known.num_saved = len(known)


@functools.cache
def _imports(path: Path) -> list[tuple[int, str]]:
    return _read_source(path, path.read_bytes()).imports


def forget_imports() -> None:
    """Forget the imports read so far, because files may have been edited, in a process that plans several times."""
    _imports.cache_clear()
    imported_modules.cache_clear()


def _list_imports(tree: ast.Module) -> list[tuple[int, str]]:
    """Return all imports of a file: level of a relative import, and dotted name."""
    found: list[tuple[int, str]] = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            found += [(node.level, start.rstrip(".")), *((node.level, start + alias.name) for alias in node.names)]
    return found


def statements(node: ast.AST, *, into_definitions: bool = True) -> Iterator[ast.AST]:
    """Return the statements within a node at any depth, without their expressions, which are most of a file.

    Args:
        node: a module, or a statement.
        into_definitions: whether to include the bodies of functions and classes, whose names are not the module's.
    """
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            if into_definitions or not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from statements(statement, into_definitions=into_definitions)


def _prefixes(name: str) -> Iterator[list[str]]:
    """Return `a.b.c` as [a], [a, b], [a, b, c], because importing a module runs its parent packages."""
    parts = name.split(".")
    return (parts[:i] for i in range(1, len(parts) + 1))


@functools.cache
def imported_modules(path: Path) -> dict[str, Path]:
    """Return the modules of this package that a file imports anywhere, with their parent packages, and their files."""
    names = {name for level, name in _imports(path) if not level and name.split(".")[0] == PACKAGE}
    modules = dict.fromkeys(".".join(parts) for name in names for parts in _prefixes(name))
    return {
        name: file for name in modules if (file := _file_once(PACKAGE_ROOT, tuple(name.split(".")[1:]))) is not None
    }


def own_imports(path: Path) -> set[Path]:
    """Return the files of the user's own code that a user's file imports, with their parent packages.

    Own code is in the file's package, or on the Python path outside of installed packages.
    """
    found = {init for folder in enclosing_packages(path) if (init := folder / "__init__.py").is_file()}
    for level, name in _imports(path):
        if level:
            # One dot is the folder of the file, for modules and packages alike.
            folders = [path.parents[level - 1]] if level <= len(path.parents) else []
        else:
            top = name.split(".")[0]
            holding = [f for f in python_path() if top != PACKAGE and _is_own(f, top, path)]
            # As in Python: the first regular package or module, else all folders of that name.
            folders = [f for f in holding if file_in(f, [top])][:1] or holding
        found |= {file for folder in folders for parts in _prefixes(name) if name and (file := file_in(folder, parts))}
    return found


def enclosing_packages(path: Path) -> Iterator[Path]:
    """Return the parent folders of a file that are packages, innermost first."""
    return itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents)


def _is_own(folder: Path, top: str, path: Path) -> bool:
    """Return whether a folder of the Python path has a module or package `top` of the user's own code."""
    if not ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
        return False
    is_installed = INSTALLED & set(folder.parts) or folder.is_relative_to(sysconfig.get_path("stdlib"))
    return path.is_relative_to(folder / top) or not is_installed


def source_closure(entries: Iterable[Path], only: tuple[str, ...] = (), without: Iterable[Path] = ()) -> list[Path]:
    """Return the entries and all files that they import, directly or not, sorted.

    Args:
        entries: files to start from.
        only: packages to stay in, such as ``bayesmesh.models``; all if empty.
        without: files to leave out, with imports that only they need.

    Raises:
        ConfigError: a file is not valid Python.
    """
    waiting, seen, left_out = list(entries), set(), set(without)
    while waiting:
        path = waiting.pop()
        if path in seen or path in left_out:
            continue
        seen.add(path)
        if not _in_package(path):
            waiting += own_imports(path)
        for module, file in imported_modules(path).items():
            if not module.startswith(_LEFT_OUT) and (not only or module.startswith(only)):
                waiting.append(file)
    return sorted(seen, key=str)


def fingerprint(files: Iterable[Path], digests: Mapping[Path, str] | None = None) -> str:
    """Return a digest of the names and contents of files, 16 hexadecimal digits; the location of user files does not count.

    Args:
        files: source files, whose comments, docstrings and layout do not count, and other files such as templates.
        digests: digests to use for some of them, such as those of `bayesmesh.planning.plan_model_code`.
    """
    digests = digests or {}
    lines = sorted(f"{_name(path)}\0{digests.get(path) or digest_file(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def digest_file(path: Path) -> str:
    """Return the sha256 of a file: of the syntax of Python, of the bytes of anything else.

    Raises:
        ConfigError: a Python file is not valid.
    """
    if path.suffix == ".py":
        return _read_source(path, path.read_bytes()).digest
    return hash_file(path)


def digest_syntax(tree: ast.AST, without: Collection[ast.AST] = ()) -> str:
    """Return the sha256 of a syntax tree; comments, docstrings, layout and line numbers do not count.

    Args:
        tree: a parsed file.
        without: nodes to leave out, each with everything in it.

    >>> digest_syntax(ast.parse("x = 1  # one")) == digest_syntax(ast.parse("'Text.'\\n\\nx = (1)"))
    True
    """
    tokens: list[str] = []
    # A stack, because expressions may be nested more deeply than calls.
    waiting: list[ast.AST | str] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            tokens.append(item)
        elif not (item in without or (item.__class__ is ast.Expr and is_text(item))):
            tokens.append(item.__class__.__name__)
            waiting.append(")")
            values = item.__dict__
            for name in reversed(item._fields):
                value = values.get(name)
                # Empty fields are left out, because a later Python may add more of them.
                if value is None or name == "ctx":
                    continue
                if not isinstance(value, list):
                    waiting += (value, name) if isinstance(value, ast.AST) else (name + repr(value),)
                elif value:
                    waiting += [each if isinstance(each, ast.AST) else repr(each) for each in reversed(value)]
                    waiting.append(name)
    return hashlib.sha256(",".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def is_text(node: object) -> bool:
    """Return whether a node is a docstring, or another string that is a statement of its own."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _in_package(path: Path) -> str:
    """Return the path of a file of this package below its root; empty for other files."""
    text, root = str(path), f"{PACKAGE_ROOT}{os.sep}"
    return text.removeprefix(root) if text.startswith(root) else ""


def _name(path: Path) -> str:
    if inside := _in_package(path):
        return inside
    return "/".join([*reversed([folder.name for folder in enclosing_packages(path)]), path.name])
