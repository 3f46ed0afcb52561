"""No code outside of its own folder names an analysis: the registry finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bayesmesh.config.declarations import AnalysisDeclaration, list_analyses

ROOT = Path(__file__).resolve().parents[3]
CODE = [
    path
    for folder in ("src", "workflow", "profiles")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".smk", ".yaml", ".html", ".rst"} or path.name == "Snakefile"
]

EXCEPTED = re.compile(r"\boffers\b|[Dd]ual averaging")
"""What sources and models offer are words of analyses; and a step size is averaged too."""


def mentions(analysis: AnalysisDeclaration, text: str) -> list[str]:
    """Return the lines that name an analysis, its folder or its rule."""
    words = {analysis.name, analysis.folder}
    # A verb is a word of every day; as a name it is one of a list, a key or a rule.
    verb = rf"""["']{analysis.verb}["'],|^\s*{analysis.verb}:|rule {analysis.verb}\b|stages[./]{analysis.verb}\b"""
    found = re.compile(rf"\b(?:{'|'.join(sorted(words))})\b|{verb}", re.IGNORECASE)
    return [line.strip() for line in text.splitlines() if found.search(line) and not EXCEPTED.search(line)]


@pytest.mark.parametrize("analysis", list_analyses(), ids=lambda each: each.name)
def test_no_code_outside_its_own_folder_names_an_analysis(analysis: AnalysisDeclaration) -> None:
    own = analysis.path.parent if analysis.path.stem == "analysis" else analysis.path
    assert len(CODE) > 200
    named = {
        str(path.relative_to(ROOT)): lines
        for path in CODE
        if not path.is_relative_to(own) and (lines := mentions(analysis, path.read_text(encoding="utf-8")))
    }
    assert named == {}


def test_a_mention_is_found() -> None:
    (averaging,) = [each for each in list_analyses() if each.verb == "average"]
    for line in ("layout.averaging", "rule average:", '    "average",', "  average: results", "import stages.average"):
        assert mentions(averaging, line) == [line.strip()]
    assert mentions(averaging, 'offers = ("averaging",)\n# Dual averaging\nthe average of all draws\n') == []
