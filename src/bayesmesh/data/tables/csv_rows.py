"""CSV rows whose number of cells differs from the header's: blank lines are skipped, and broken ones are reported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.csv import InvalidRow

MOST_SHOWN = 60
"""Number of characters of a broken row that a message quotes."""

_ARROW_ROW = re.compile(r"Row #(\d+): ")


class RowCheck:
    """Handler that Arrow calls for each row whose number of cells differs from the header's.

    Attributes:
        fault: the row at which reading ended, and what is wrong with it; empty if there is none.
        remedy: how to correct it.
    """

    def __init__(self) -> None:
        self.fault, self.remedy = "", ""
        self._blank: list[int] = []

    def __call__(self, row: InvalidRow) -> str:
        """Return the action for Arrow: skip a blank line, as it skips an empty one, or stop."""
        number = row.number or 0
        if not row.text.strip():
            self._blank.append(number)
            return "skip"
        shown = row.text if len(row.text) <= MOST_SHOWN else f"{row.text[:MOST_SHOWN]} ..."
        cells = "1 cell" if row.actual_columns == 1 else f"{row.actual_columns} cells"
        self.fault = f"row {self.row_of_table(number)}: {cells}, and the header has {row.expected_columns}: {shown!r}"
        if row.text.count('"') % 2 and row.actual_columns < row.expected_columns:
            self.remedy = "close the quote, or double a quote within a quoted text"
        else:
            self.remedy = "correct the line, or quote a cell that holds the delimiter"
        if row.actual_columns == row.expected_columns + 1:
            self.remedy += "; if every row begins with its name, as R writes it, begin the header with a name for these"
        if row.expected_columns == 1:
            self.remedy += "; leave out lines above the header, because the first line names the columns"
        return "error"

    def row_of_table(self, number: int) -> int:
        """Return a row's number below the header, from 1, as in other messages: Arrow counts the header and blank lines."""
        return number - 1 - sum(blank < number for blank in self._blank)

    def restate(self, said: str) -> str:
        """Return Arrow's message with the number of the row in the table.

        >>> RowCheck().restate("In CSV column #1: Row #3: invalid UTF8 data")
        'In CSV column #1: row 2: invalid UTF8 data'
        """
        return _ARROW_ROW.sub(lambda found: f"row {self.row_of_table(int(found[1]))}: ", said)
