"""Show the progress of a call in a notebook or on a terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from bayesmesh.sampling.loop.progress import State


class ProgressBar:
    """One bar for all stages of a call; a context manager.

    Args:
        num_stages: number of stages.
        is_shown: False for no bar; otherwise there is one in a notebook, and where stderr is a terminal.
    """

    def __init__(self, num_stages: int, *, is_shown: bool) -> None:
        self._bar: Any = None
        self._num_stages, self._stage = num_stages, ""
        if is_shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            with warnings.catch_warnings():
                # Without the widgets package, a notebook shows the bar of a terminal.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
            self._bar = tqdm(total=num_stages, bar_format="{desc} |{bar}| {n_fmt} of {total_fmt} {unit}, {elapsed}")

    def begin_stage(self, number: int, stage: str) -> None:
        """Show that a stage begins, or that it is already complete."""
        self._stage = stage
        self._show(stage, number, self._num_stages, " stages")

    def show(self, states: Sequence[State]) -> None:
        """Show the progress of the running jobs; for chain groups, their sum."""
        if states:
            done, total = sum(s.done for s in states), sum(s.total for s in states)
            phase = states[0].label.rpartition(" ")[2]
            self._show(f"{self._stage}: {phase}", done, total, f"{states[0].unit}s")

    def _show(self, text: str, done: int, total: int, unit: str) -> None:
        if self._bar is not None:
            self._bar.total, self._bar.n, self._bar.unit = total, done, unit.strip()
            self._bar.set_description_str(text, refresh=False)
            self._bar.refresh()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bar is not None:
            if raised[0] is None:
                self._show("done", self._num_stages, self._num_stages, " stages")
            self._bar.close()
