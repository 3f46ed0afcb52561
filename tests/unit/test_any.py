"""The share of functions whose signature says `Any`, and the counter that knows it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

TYPES = """
import typing as t
from collections.abc import Mapping
from typing import Any as Anything, TypeVar

Facts = Mapping[str, Anything]
Nested = dict[str, "Facts"]
type Lazy = list[t.Any]
Free = TypeVar("Free", bound=Anything)
Plain = Mapping[str, int]
"""

COUNTED = [
    "def f(x: Any): ...",
    "def f(x: int) -> Any: ...",
    "def f(*x: Any): ...",
    "def f(**x: Any): ...",
    "def f(x: dict[str, list[Any]]): ...",
    "def f(x: 'Mapping[str, Any]'): ...",
    "def f(x: typing.Any): ...",
    "def f(x: Facts): ...",
    "def f(x: list[Nested | None]): ...",
    "def f(x: Lazy): ...",
    "def f(x: types.Nested): ...",
    "def f(x: Free) -> Free: ...",
    "def f[T: Any](x: T) -> T: ...",
    "class A:\n    def f(self, x: Facts): ...",
    "def outer():\n    async def f(x: Own): ...",
]

NOT_COUNTED = [
    "def f(x: int) -> None: ...",
    "def f(x: object): ...",
    "def f(x: Plain): ...",
    "def f(x: Float[Array, 'chain dim']) -> Float[Array, '']: ...",
    "def f(x: Literal['Any thing']): ...",
    "def f(x: int = 1):\n    y: Any = x",
    "class A:\n    x: Any",
]

IMPORTS = """
import typing
from typing import Any, Literal
from collections.abc import Mapping
from jaxtyping import Array, Float
from package import types
from package.types import Facts, Free, Lazy, Nested, Plain

Own = Facts
"""


@pytest.fixture(scope="module")
def counter() -> ModuleType:
    """Return tools/count_any.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("count_any", ROOT / "tools" / "count_any.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up.
    sys.modules["count_any"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("expected", "sources"), [(1, COUNTED), (0, NOT_COUNTED)], ids=["counted", "not-counted"])
def test_any_is_found_wherever_it_hides(counter: ModuleType, expected: int, sources: list[str]) -> None:
    types = counter.read_module("package.types", TYPES)
    for source in sources:
        module = counter.read_module("package.module", IMPORTS + source)
        found = list(counter.find_functions({"package.types": types, "package.module": module}))
        assert sum(each.has_any for each in found) == expected, source


def test_few_signatures_say_any(counter: ModuleType) -> None:
    found = list(counter.find_functions(counter.read_package(ROOT / "src")))
    assert len(found) > 1000
    share = sum(each.has_any for each in found) / len(found)
    assert share <= counter.LIMIT, f"{share:.1%} of functions; `python tools/count_any.py --list` lists them"
