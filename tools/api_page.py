"""Write docs/api.md from the docstrings of the public functions and of the contracts' base classes; --check compares."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

FUNCTIONS = ("bayesmesh:sample", "bayesmesh:open", "bayesmesh:verdict", "bayesmesh:compare")
CLASSES = (
    "bayesmesh.notebook.result:Result", "bayesmesh.notebook.result:ShownVerdict", "bayesmesh.notebook.comparison:ShownComparison",
    "bayesmesh.models.base:Model",
    "bayesmesh.kernels.base:Kernel", "bayesmesh.kernels.hamiltonian.metrics.base:Metric", "bayesmesh.data.base:Source",
    "bayesmesh.analyses.base:Analysis",
)  # fmt: skip

HEAD = """\
# API reference

Written by `make schema` from the docstrings. [From a notebook](how-to/notebook.md) shows the functions at work, [extending](how-to/extending.md) the classes.
"""

SECTION = re.compile(r"^(Args|Class attributes|Returns|Raises|Yields|Attributes|Reference):$")
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*): (.*)$")


def main() -> int:
    """Write the page, or say that it is out of date."""
    text = "\n".join([HEAD, *describe_functions(), *describe_classes()]).rstrip() + "\n"
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/api.md is out of date\n  remedy: make schema", file=sys.stderr)
        return 1
    return 0


def describe_functions() -> Iterator[str]:
    """Yield the lines about functions."""
    yield "## Functions\n"
    for named in FUNCTIONS:
        module, _, name = named.partition(":")
        yield from describe(f"### {module}.{name}", name, getattr(importlib.import_module(module), name))


def describe_classes() -> Iterator[str]:
    """Yield the lines about classes, with their public methods and properties."""
    yield "## Classes\n"
    for named in CLASSES:
        module, _, name = named.partition(":")
        cls = getattr(importlib.import_module(module), name)
        yield f"### {module}.{name}\n"
        yield as_markdown(cls)
        for member, value in vars(cls).items():
            function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
            if isinstance(value, functools.cached_property):
                function = value.func
            if inspect.isfunction(function) and function.__doc__ and not member.startswith("_"):
                is_called = not isinstance(value, property | functools.cached_property)
                yield from describe(f"#### {name}.{member}", member, function, is_called=is_called)


def describe(heading: str, name: str, function: object, *, is_called: bool = True) -> Iterator[str]:
    """Yield heading, signature and docstring of a function or a property."""
    yield f"{heading}\n"
    if is_called and callable(function):
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
        short = signature if len(signature) < 100 else re.sub(r", (?=\w+:|\*)", ",\n    ", signature)
        yield f"```text\n{name}{short}\n```\n"
    yield as_markdown(function)


def as_markdown(value: object) -> str:
    """Return a docstring, with its sections as lists."""
    lines, found, section = (inspect.getdoc(value) or "").splitlines(), [], ""
    for line in lines:
        if match := SECTION.match(line):
            section = match[1]
            found.append(f"**{section}**\n")
        elif (
            section
            and line.startswith("    ")
            and not line.startswith("     ")
            and (entry := ENTRY.match(line.strip()))
        ):
            found.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            section = section if not line or line.startswith(" ") else ""
            found.append(("  " if section and found[-1].startswith(("-", "  ")) else "") + line.strip() if line else "")
    return "\n".join(found).replace("``", "`") + "\n"


if __name__ == "__main__":
    sys.exit(main())
