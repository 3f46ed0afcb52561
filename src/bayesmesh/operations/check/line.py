"""The outcome of one check, as it is printed, and what the checks of all kinds of components share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bayesmesh.config.registry import resolve_component
from bayesmesh.config.settings import Settings, describe
from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError, UserError

OK, FAILS, LEFT_OUT = "ok", "FAILS", "left out"


class Line(NamedTuple):
    """The outcome of a check: `OK`, `FAILS` or `LEFT_OUT`; what was seen; and the remedy of a failure."""

    name: str
    state: str
    seen: str
    remedy: str = ""

    def text(self) -> str:
        """Return the line as it is printed."""
        remedy = f"\n          remedy: {self.remedy}" if self.remedy else ""
        return f"{self.state:<8}  {self.name}: {self.seen}{remedy}"


def check_options(name: str, options: type[Settings], path: Path) -> Line:
    """Check that every option has a description.

    Args:
        name: of the check.
        options: class of the options.
        path: the component's source file, for the message.
    """
    if bare := [key for key, field in options.model_fields.items() if not describe(field)]:
        return Line(name, FAILS, f"{path}: option '{bare[0]}' has no description", "write one into its Field, or as a string below it: the table of keys shows it")  # fmt: skip
    return Line(name, OK, f"each of {len(options.model_fields)} has a description")


def resolve(kind: str, name: str, given: Mapping[str, object]) -> tuple[type[Any], Any]:
    """Return the class of a component and its options.

    Raises:
        ConfigError: no such component, or an option is missing or invalid.
    """
    try:
        return resolve_component(kind, name, given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{kind} '{name}': option {where}: {first['msg']}", "give an experiment that sets it: --experiment NAME"
        ) from error


def run_checks[S](
    checks: Mapping[str, Callable[[str, S], Line]], subject: S, path: Path, remedy: str = "",
    method: Callable[..., object] | None = None,
) -> Iterator[Line]:  # fmt: skip
    """Yield the outcome of each check of a subject; an error that a check meets is its failure.

    Args:
        checks: name of a check -> the check.
        subject: what is checked.
        path: the component's source file.
        remedy: for errors without one.
        method: the component's method that the checks call, see `explaining`.
    """
    for name, check in checks.items():
        try:
            with explaining([path], method):
                line = check(name, subject)
        except UserError as error:
            line = Line(name, FAILS, error.message, error.remedy or remedy)
        yield line
