"""Find the part of a model's code that only later stages need, so that changing it does not trigger sampling again.

A member such as `summaries` is left out of a fingerprint unless code that stays refers to its name, in any file of the
model. Functions to which only left-out code refers are left out too. Names are compared, not objects, so a member
stays if anything else uses its name. Where names may be built at run time, nothing is left out.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.config_source_code import PACKAGE_ROOT, digest_syntax, is_text, parse_file, statements

LATER = frozenset({
    "summaries", "predict", "outcome", "has_predictions", "offers", "folds_in", "folds_in_ratings", "pretty_name",
    "grouping_columns", "with_new_levels", "shown", "described", "check_all_rows", "outcome_field", "row_problem", "deterministics",
})  # fmt: skip
"""Members of a model that do not affect draws: later stages, checks and tables read them."""

_PLAIN_BASES = {"Model", "ABC", "Protocol", "Generic", "object"}
_DYNAMIC = {
    "globals",
    "locals",
    "vars",
    "eval",
    "exec",
    "__dict__",
    "__getattribute__",
    "getmembers",
    "attrgetter",
    "methodcaller",
}
"""Ways to reach a definition without its name in the code; `getattr` counts only with a computed name."""
_MODELS = PACKAGE_ROOT / "models"


class _Part(NamedTuple):
    """A definition that may be left out.

    Attributes:
        name: its name.
        uses: names that it refers to.
        is_member: whether it is one of `LATER`; otherwise a function of a module.
    """

    name: str
    uses: Set[str]
    is_member: bool


type _Parts = Mapping[ast.AST, _Part]


def digest_without(files: Iterable[Path], members: Set[str] = LATER) -> dict[Path, str]:
    """Return file -> digest of its syntax without the code that only some members of models need, for model files.

    Args:
        files: all source files of a stage.
        members: names to leave out, from `LATER`.

    Raises:
        ConfigError: a file is not valid Python.
    """
    own = (path for path in files if path.is_relative_to(_MODELS) or not path.is_relative_to(PACKAGE_ROOT))
    return _digest_without(tuple((path, path.read_bytes()) for path in own if path.suffix == ".py"), frozenset(members))


@functools.cache
def _digest_without(contents: tuple[tuple[Path, bytes], ...], members: frozenset[str]) -> dict[Path, str]:
    trees = {path: parse_file(path) for path, _ in contents}
    classes = [node for tree in trees.values() for node in statements(tree) if isinstance(node, ast.ClassDef)]
    known = _PLAIN_BASES | {node.name for node in classes}
    parts: dict[ast.AST, _Part] = {}
    for node in classes:
        # A package may call the methods of a class that derives from one of its own.
        if {_last_name(base) for base in node.bases} <= known:
            named = ((each, _defined_name(each)) for each in node.body)
            parts |= {each: _Part(name, set(_names(each)), True) for each, name in named if name in members}
    for top in (top for tree in trees.values() for top in tree.body if isinstance(top, ast.FunctionDef)):
        # A decorator may keep the function somewhere.
        if not top.decorator_list:
            parts[top] = _Part(top.name, set(_names(top)), False)
    uses = {name for tree in trees.values() for name in _names(tree, parts)}
    left_out = _left_out(parts, uses)
    return {path: digest_syntax(tree, left_out) for path, tree in trees.items()}


def _left_out(parts: _Parts, uses: Set[str]) -> Set[ast.AST]:
    """Return the members to which nothing that stays refers, and the functions that only they need.

    Args:
        parts: definitions that may be left out.
        uses: names to which everything else refers.
    """
    while True:
        reached = _reached(parts, uses)
        if _DYNAMIC & (uses | _uses(reached)):
            return frozenset()
        unused = {node: part for node, part in parts.items() if node not in reached}
        later = {node: part for node, part in unused.items() if part.is_member}
        needed = {*later, *_reached(unused, _uses(later))}
        # A function to which nothing refers may be reached in another way: it stays, with all that it needs.
        hidden = {node: part for node, part in unused.items() if node not in needed}
        if not hidden:
            return needed
        uses = uses | _uses(hidden)
        parts = {node: part for node, part in parts.items() if node not in hidden}


def _reached(parts: _Parts, names: Set[str]) -> _Parts:
    """Return the definitions that names lead to, directly or through each other."""
    reached: dict[ast.AST, _Part] = {}
    while more := {n: part for n, part in parts.items() if n not in reached and part.name in names}:
        reached |= more
        names = names | _uses(more)
    return reached


def _uses(parts: _Parts) -> Set[str]:
    return frozenset().union(*(part.uses for part in parts.values()))


def _names(node: ast.AST, without: _Parts | None = None) -> Iterator[str]:
    """Yield the names in a syntax tree: variables, attributes, imports, and strings, which `getattr` may take."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if is_text(each) or (without and each in without):
            continue
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name
            case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]) if not isinstance(name, ast.Constant):
                yield from _DYNAMIC
            case ast.alias(name=name):
                yield from name.split(".")
        waiting += ast.iter_child_nodes(each)


def _last_name(base: ast.AST) -> str:
    """Return the name of a base class, without its module and parameters."""
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
    return ""


def _defined_name(statement: ast.AST) -> str:
    """Return the name that a statement of a class defines; empty if it defines none, or several."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""
