"""The badge for the fit of a model: stored in the head of its page, and read by the index and by ``bayesmesh status``."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import NamedTuple

_HEAD_BYTES = 65_536


class FitBadge(NamedTuple):
    """What a page says beside the verdict on the sampling.

    Attributes:
        state: fail, warn or pass, or none if nothing was checked.
        text: text of the badge.
        doubts: results that disagree with the draws, in sentences.
    """

    state: str = "none"
    text: str = "not checked"
    doubts: tuple[str, ...] = ()

    def stored(self) -> str:
        """Return the content of the page's meta element."""
        return json.dumps(self)


def read_fit(page: Path) -> FitBadge:
    """Return the badge of a page; ``not checked`` without a page, or for one that another version wrote or that is damaged.

    Raises:
        OSError: the page cannot be read.
    """
    if not page.exists():
        return FitBadge()
    with page.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    found = re.search(r'<meta name="bayesmesh-fit" content="([^"]*)">', head)
    if found is None:
        return FitBadge()
    try:
        state, text, doubts = json.loads(html.unescape(found[1]))
    except ValueError:
        return FitBadge()
    return FitBadge(str(state), str(text), tuple(map(str, doubts)))
