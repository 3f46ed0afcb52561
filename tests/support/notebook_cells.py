"""Run code as the cells of a notebook: its lines are kept under a name, and its module is the main one."""

from __future__ import annotations

import linecache
from typing import Any


class Cells:
    """The cells of one notebook, which share their names."""

    def __init__(self, word: str) -> None:
        self._word = word
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, text: str) -> None:
        """Run a cell."""
        name = f"<{self._word} cell {len([*linecache.cache])}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), self.names)
