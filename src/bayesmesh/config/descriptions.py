"""Read what a field of a settings class is about from the string below it in the source, when it is shown."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

__all__ = ["descriptions"]


@functools.cache
def descriptions(cls: type[BaseModel]) -> dict[str, str]:
    """Return field -> description: that of ``Field``, else the string below the field in its class or a base of it.

    Options of components are made from source text alone (`read_options`), and describe their fields in ``Field``.
    """
    found = dict(pair for base in reversed(cls.__mro__) for pair in _strings_below(base))
    given = {name: field.description for name, field in cls.model_fields.items() if field.description}
    return {name: text for name, text in {**found, **given}.items() if name in cls.model_fields}


def _strings_below(cls: type) -> Iterator[tuple[str, str]]:
    """Yield name and string of every annotation in the body of a class that a string follows."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    tree = _parsed(Path(file)) if file is not None and issubclass(cls, BaseModel) else ast.Module([], [])
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            for field, below in itertools.pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    yield ast.unparse(field.target), " ".join(str(ast.literal_eval(below.value)).split())


@functools.cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())
