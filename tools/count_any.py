"""Count the functions whose signature says `Any`, in all of src/bayesmesh or in one folder.

`Any` counts wherever it stands in the annotation of a parameter or of the return: nested, in quotes, under another name
of an import, or behind an alias or a type variable of any module of the package.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src"
LIMIT = 0.08
"""Largest share of functions that may say `Any`; a unit test holds the package to it."""

UNTYPED = frozenset({"typing.Any", "typing_extensions.Any", "_typeshed.Incomplete"})
"""Full names of what the type checker does not check."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Module:
    """A parsed file.

    Attributes:
        names: what an import binds -> full name of what it stands for.
        aliases: name that the module's top level assigns -> the expression, which may be a type.
    """

    name: str
    tree: ast.Module
    names: dict[str, str]
    aliases: dict[str, ast.expr]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One function, and whether its signature says `Any`."""

    module: str
    name: str
    line: int
    has_any: bool


def read_module(name: str, source: str) -> Module:
    """Return a module's imports, wherever they stand, and the names that its top level assigns."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    aliases: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in _unconditional(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                aliases[target] = value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                aliases[target] = value
            case ast.TypeAlias(name=ast.Name(id=target), value=value):
                aliases[target] = value
    return Module(name, tree, names, aliases)


def _unconditional(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements of a module's top level, those below `if` and `try` among them."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _unconditional([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def find_functions(modules: dict[str, Module]) -> Iterator[Finding]:
    """Iterate over all functions and methods of the modules, nested ones among them."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                says = any(_says_any(each, module, modules, frozenset()) for each in _annotations(node))
                yield Finding(module.name, node.name, node.lineno, says)


def _annotations(node: Function) -> Iterator[ast.expr]:
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    yield from (parameter.annotation for parameter in parameters if parameter and parameter.annotation)
    if node.returns:
        yield node.returns
    # Type parameters may be bounded by it: `def f[T: Any](x: T)`.
    yield from (p.bound for p in node.type_params if isinstance(p, ast.TypeVar) and p.bound)


def _says_any(expression: ast.expr, module: Module, modules: dict[str, Module], seen: frozenset[str]) -> bool:
    """Say whether a type contains `Any`; `seen` are the aliases on the way, for one may contain itself."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                quoted = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                continue  # not a type: the axes of an array, a word of a Literal
            if _says_any(quoted, module, modules, seen):
                return True
        elif isinstance(node, ast.Name | ast.Attribute):
            full = _full_name(node, module)
            if full in UNTYPED:
                return True
            home, _, name = full.rpartition(".")
            if full not in seen and home in modules and name in modules[home].aliases:
                alias = modules[home].aliases[name]
                if _says_any(alias, modules[home], modules, seen | {full}):
                    return True
    return False


def _full_name(node: ast.Name | ast.Attribute, module: Module) -> str:
    """Return the dotted name that a name or an attribute of one stands for in a module."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return ""
    return ".".join([module.names.get(inner.id, f"{module.name}.{inner.id}"), *reversed(parts)])


def read_package(root: Path) -> dict[str, Module]:
    """Return all modules below a folder, by their full names."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = read_module(name, path.read_text(encoding="utf-8"))
    return modules


def main() -> int:
    """Print the share by folder; exit code 1 where the whole has more than `LIMIT`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="also list the functions that say Any")
    parser.add_argument("--under", default="", help="only modules whose name begins so, such as bayesmesh.store")
    arguments = parser.parse_args()
    found = [f for f in find_functions(read_package(ROOT)) if f.module.startswith(arguments.under)]
    if arguments.list:
        for each in found:
            if each.has_any:
                print(f"{each.module}:{each.line}: {each.name}")
    total: Counter[str] = Counter()
    untyped: Counter[str] = Counter()
    for each in found:
        folder = ".".join(each.module.split(".")[:2])
        total[folder] += 1
        untyped[folder] += each.has_any
    for folder in total:
        print(f"{folder:30}{untyped[folder]:5} of {total[folder]:5}  {untyped[folder] / total[folder]:6.1%}")
    share = untyped.total() / max(total.total(), 1)
    print(f"{'all':30}{untyped.total():5} of {total.total():5}  {share:6.1%}, at most {LIMIT:.0%}")
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
