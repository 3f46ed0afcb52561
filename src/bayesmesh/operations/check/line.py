"""The outcome of one check, as it is printed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.settings import Settings, describe

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
