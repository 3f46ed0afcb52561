"""The outcome of one check, as it is printed."""

from __future__ import annotations

from typing import NamedTuple

OK, FAILS, LEFT_OUT = "ok", "FAILS", "left out"


class Line(NamedTuple):
    """The outcome of a check: `OK`, `FAILS` or `LEFT_OUT`; what was seen; and the remedy of a failure."""

    name: str
    state: str
    seen: str
    remedy: str = ""

    def text(self) -> str:
        """Return it as it is printed."""
        remedy = f"\n          remedy: {self.remedy}" if self.remedy else ""
        return f"{self.state:<8}  {self.name}: {self.seen}{remedy}"
