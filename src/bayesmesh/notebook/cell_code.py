"""Write classes and functions that were defined in a notebook or a script into a module that jobs import.

A module holds the source of the given objects and of everything that they refer to: imports, constants, functions and
classes. The module therefore covers everything that determines the draws. Objects without source, such as arrays,
are refused.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import inspect
import linecache
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import NamedTuple

from bayesmesh.errors import ConfigError

type Definition = type | Callable[..., object]
"""A class or a function."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, set, frozenset)
_NEW_CELL = "define it at the top level of a cell or of a module"


def is_of_cell(value: object) -> bool:
    """Return whether something was defined in a notebook or a script, and not in a module that can be imported."""
    return getattr(value, "__module__", None) == "__main__"


class _Source(NamedTuple):
    """The definition of a class or a function: its statement, and the file or the cell that holds it."""

    node: ast.ClassDef | ast.FunctionDef
    text: str
    file: str


class CellCode:
    """Collects definitions, and everything that they refer to, as the text of a module."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._parts: list[str] = []
        self._is_postponed = False

    @property
    def text(self) -> str:
        """The module; empty if nothing was added."""
        if not self._parts:
            return ""
        first = "from __future__ import annotations\n\n" if self._is_postponed else ""
        return f'{first}"""Code of cells, which `bayesmesh.sample` wrote."""\n\n' + "\n\n".join(self._parts) + "\n"

    def add(self, value: Definition) -> str:
        """Add a class or a function with everything that it refers to, and return its name in the module.

        Raises:
            ConfigError: its source is not available, or it refers to something without source.
        """
        self._define(value.__name__, value, {}, "")
        return value.__name__

    def _define(self, name: str, value: object, names: Mapping[str, object], file: str) -> None:
        """Add a definition after all that it refers to.

        Args:
            name: name by which it is referred to.
            value: the class or the function.
            names: name -> value, for the names that are visible where it is referred to.
            file: the file or the cell that refers to it.
        """
        if self._is_known(name, value):
            return
        source = _source_of(name, value, file)
        names = {**names, **_globals_of(value)}
        options = getattr(value, "__annotations__", {}).get("options")
        if isinstance(options, type):
            # A later cell may have defined another class of that name.
            names = {**names, options.__name__: options}
        self._values[name] = value
        self._is_postponed |= _is_postponed(value)
        # A component finds its options by the name of their class, whether or not it refers to that class.
        implied = {"Options"} if isinstance(value, type) and is_of_cell(names.get("Options")) else set()
        for used in sorted((_names_used(source.text) | implied) - {name}):
            if used in names:
                self._include(used, names[used], names, source.file, f"'{name}'")
        self._parts.append(source.text)

    def _is_known(self, name: str, value: object) -> bool:
        """Return whether a name is in the module already.

        Raises:
            ConfigError: the name stands for something else there.
        """
        if name in self._values and self._values[name] is not value:
            raise ConfigError(f"'{name}' stands for two things in the code of the cells", "give one another name")
        return name in self._values

    def _include(self, name: str, value: object, names: Mapping[str, object], file: str, user: str) -> None:
        if isinstance(value, ModuleType):
            self._write(name, value, _renamed(f"import {value.__name__}", value.__name__, name))
        elif is_of_cell(value) and (isinstance(value, type) or callable(value)):
            self._define(name, value, names, file)
        elif imported := _import_of(name, value):
            self._write(name, value, imported)
        elif _is_plain(value):
            self._write(name, value, f"{name} = {value!r}")
        else:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise ConfigError(
                f"{user} refers to '{name}', a value of the notebook of type {kind}, whose source is unknown",
                "pass it with the data, as an option of the model, or compute it inside the definition",
            )

    def _write(self, name: str, value: object, line: str) -> None:
        if not self._is_known(name, value):
            self._values[name] = value
            self._parts.append(line)


def _source_of(name: str, value: object, file: str) -> _Source:
    """Return the source of a class or a function.

    Raises:
        ConfigError: the source is not available.
    """
    plain = inspect.unwrap(value) if callable(value) else value
    qualified = getattr(plain, "__qualname__", "")
    if "<lambda>" in qualified:
        raise ConfigError(
            f"'{name}' is a lambda, whose source cannot be told from that of its line", "write it as a def"
        )
    if qualified != name:
        where = "is defined inside another definition" if "." in qualified else f"was defined as '{qualified}'"
        raise ConfigError(f"'{name}' {where}", f"{_NEW_CELL}, under the name that is used")
    functions = list(_functions_of(plain))
    if functions:
        first = functions[0].__code__
        found = _definitions(name, first.co_filename, first.co_firstlineno)
    else:
        # For example, a class with only fields: these alone tell from which cell it comes.
        found = _definitions(name, file) or [each for cell in _cells() for each in _definitions(name, cell)]
        found = [each for each in found if _fields(each.node) == set(vars(plain).get("__annotations__", {}))]
    if len({each.text for each in found}) != 1:
        problem = "has no source" if not found else "is defined in several cells"
        remedy = "start IPython, a notebook or a script; source typed into plain Python is not kept"
        raise ConfigError(f"'{name}' {problem}", remedy if not found else "keep one of them, or rename it")
    return found[-1]


def _functions_of(value: object) -> Iterator[FunctionType]:
    """Yield a function itself, or the functions in the body of a class, except those put there by others."""
    if isinstance(value, FunctionType):
        yield value
    for member in vars(value).values() if isinstance(value, type) else ():
        for each in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
            if isinstance(each, FunctionType) and each.__module__ == value.__module__:
                # A dataclass has generated functions without source lines.
                yield from [each] if linecache.getlines(each.__code__.co_filename) else []


def _globals_of(value: object) -> Mapping[str, object]:
    """Return the globals of a definition; empty for a class without functions."""
    functions = _functions_of(inspect.unwrap(value) if callable(value) else value)
    return next((function.__globals__ for function in functions), {})


def _definitions(name: str, file: str, line: int | None = None) -> list[_Source]:
    """Return the definitions of a name at the top level of a file or a cell, only those that contain `line` if it is given."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # The cell did not run.
        return []
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if line is None or first <= line <= last:
                found.append(_Source(node, "".join(text.splitlines(keepends=True)[first - 1 : last]).rstrip(), file))
    return found


def _cells() -> list[str]:
    """Return the cells of a notebook, by the names under which `linecache` keeps them, and the running script."""
    cells = [name for name, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]
    script = getattr(importlib.import_module("__main__"), "__file__", None)
    return [*cells, *([script] if script else [])]


def _fields(node: ast.AST) -> set[str]:
    """Return the annotated names in the body of a class."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return {each.target.id for each in body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}


def _names_used(text: str) -> set[str]:
    """Return the free names of a definition.

    >>> sorted(_names_used("def f(x, y=start):\\n    z = x\\n    return [scale * each for each in z]"))
    ['scale', 'start']
    """
    found, waiting = set[str](), [(symtable.symtable(text, "cell", "exec"), True)]
    while waiting:
        table, is_top = waiting.pop()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (not symbol.is_assigned() if is_top else symbol.is_global()):
                found.add(symbol.get_name())
        waiting += [(child, False) for child in table.get_children()]
    return {name for name in found if not hasattr(builtins, name)}


def _is_postponed(value: object) -> bool:
    flag = __future__.annotations.compiler_flag
    return any(function.__code__.co_flags & flag for function in _functions_of(value))


def _import_of(name: str, value: object) -> str:
    """Return the statement that imports a class, a function or another object of a module; empty if there is none."""
    module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(attribute, str) or not attribute.isidentifier():
        return ""
    if module not in sys.modules or getattr(importlib.import_module(module), attribute, None) is not value:
        return ""
    return _renamed(f"from {module} import {attribute}", attribute, name)


def _renamed(statement: str, attribute: str, name: str) -> str:
    return statement if attribute == name else f"{statement} as {name}"


def _is_plain(value: object) -> bool:
    """Return whether a value can be written out, at any depth."""
    if not isinstance(value, _PLAIN):
        return False
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
