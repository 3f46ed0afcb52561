"""Write docs/api.md from docstrings, and docs/reference/commands.md and families.md from the verbs and families themselves.

With --check, compare them with the code.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bayesmesh.cli import OF_STAGES, VERBS, help_of
from bayesmesh.models.glm.families.base import family_of
from bayesmesh.models.options import FAMILIES
from bayesmesh.workflow.arguments import CORES, GPUS, JOB, Option
from bayesmesh.workflow.flow import STAGES

DOCS = Path(__file__).resolve().parents[1] / "docs"

FUNCTIONS = (
    "bayesmesh:sample",
    "bayesmesh:open",
    "bayesmesh:verdict",
    "bayesmesh:compare",
    "bayesmesh:predict",
    "bayesmesh:effects",
    "bayesmesh:recommend",
)
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

COMMANDS_HEAD = """\
# Commands

Written by `make schema` from the table of verbs. With `--help`, a verb prints the same text. `make help` lists what a clone of the repository can do
besides. [Environment variables](environment.md) are listed on a page of their own.
"""

FAMILIES_HEAD = """\
# Families of outcomes

Written by `make schema` from the families of `glm`, see [formula](../how-to/formula.md). Parameters have the names of brms where it has the family. The first link is the
default. `{rate}` stands for 1 / the standard deviation of the outcome. Families with "yes" in the last column have a distribution function.
[Add a family](../how-to/add-family.md) shows how to write one.
"""

SECTION = re.compile(r"^(Args|Class attributes|Returns|Raises|Yields|Attributes|Reference):$")
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*): (.*)$")


def main() -> int:
    """Write the pages, or say which are out of date."""
    pages = {
        DOCS / "api.md": "\n".join([HEAD, *describe_functions(), *describe_classes()]).rstrip() + "\n",
        DOCS / "reference" / "commands.md": "\n".join([COMMANDS_HEAD, *describe_commands()]).rstrip() + "\n",
        DOCS / "reference" / "families.md": "\n".join([FAMILIES_HEAD, *list_families()]) + "\n",
    }
    behind = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in behind:
        if "--check" in sys.argv:
            print(f"{path.relative_to(DOCS.parent)} is out of date\n  remedy: make schema", file=sys.stderr)
        else:
            path.write_text(pages[path], encoding="utf-8")
    return int("--check" in sys.argv and bool(behind))


def describe_commands() -> Iterator[str]:
    """Yield the lines about verbs, then those about the stages of the workflow."""
    yield "## For users\n"
    for name, verb in VERBS.items():
        yield f"### `bayesmesh {name}`\n\n{verb.help[0].upper()}{verb.help[1:]}.\n"
        yield from list_options(verb.options)
    yield "## Stages\n\nRules of the workflow call these. Each takes `--experiment NAME`, or `--spec FILE`, the settings of one job.\n"
    yield "| verb | meaning |\n| --- | --- |"
    options: dict[str, tuple[Option, list[str]]] = {}
    for stage in (*STAGES, "analyse"):
        yield f"| `{stage}` | {help_of(stage).rstrip('.')} |"
        for each in (*JOB, *OF_STAGES.get(stage, (CORES, GPUS))):
            options.setdefault(each[0], (each, []))[1].append(stage)
    yield "\nTheir options, and those of a single stage with its name:\n"
    yield from list_options(
        (name, {**settings, "help": f"{settings['help']} (`{stages[0]}`)" if len(stages) == 1 else settings["help"]})
        for (name, settings), stages in options.values()
    )


def list_options(options: Iterable[Option]) -> Iterator[str]:
    """Yield a table of options and positional arguments."""
    rows = []
    for name, settings in options:
        shown = name if name.startswith("--") else settings.get("metavar", name.upper())
        values = ", ".join(f"`{each}`" for each in settings.get("choices", ()))
        value = f" {settings['metavar']}" if "metavar" in settings and shown.startswith("--") else ""
        meaning = "; ".join(each for each in (settings.get("help", ""), values) if each)
        rows.append(f"| `{shown}{value}` | {meaning} |".replace("  ", " "))
    if rows:
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows]) + "\n"


def list_families() -> Iterator[str]:
    """Yield a table of families."""
    yield "| `family` | outcome | links | parameters, with default priors | distribution function |\n| --- | --- | --- | --- | --- |"
    for name in FAMILIES:
        family = family_of(name)
        links = ", ".join(f"`{link}`" for link in family.links)
        parameters = ", ".join(f"`{key}`: `{each.prior}`" for key, each in family.parameters.items())
        yield f"| `{name}` | {family.needs} | {links} | {parameters} | {'yes' if family.has_cdf else ''} |"
    yield "\n## In words\n\nThe outcome is y.\n"
    for name in FAMILIES:
        words = family_of(name).words
        link = words.link.format(y="y", one="y = 1", first="the first level", level="each level")
        yield f"- `{name}`: {words.family}. Link {link}."


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
