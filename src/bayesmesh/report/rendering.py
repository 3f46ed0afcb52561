"""Render a template of a page, with the script and the style that all pages share."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

from markupsafe import Markup

from bayesmesh.analyses.figures import sections
from bayesmesh.report import opening

TEMPLATES = Path(__file__).parent / "templates"
"""Folder of the templates, the style sheet and the scripts of all pages."""


def render(template: str, folder: Path = TEMPLATES, /, **context: object) -> str:
    """Render a template of a folder, which may extend the templates of the report; every value is escaped."""
    about = {
        "experiment": "",
        "stored_fit": "",
        "script": _script(),
        "script_digest": _script_digest(),
        "reading": opening,
    }
    return sections.render(folder / template, TEMPLATES, **about | context)


@functools.cache
def _script() -> Markup:
    texts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in ("parquet.js", "page.js")]
    return Markup("".join(texts))  # noqa: S704 - our own


def _script_digest() -> str:
    """Return the digest of the page's own script, for its content security policy.

    The policy allows no other script, so a script hidden in a name cannot run.
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
