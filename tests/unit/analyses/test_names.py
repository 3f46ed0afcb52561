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
    if not path.is_relative_to(ROOT / "src" / "bayesmesh" / "reproduction")
]
"""All of the product; claims of the reproduction read the published tables of analyses, as a user would."""

EXCEPTED = re.compile(r"\boffers\b|[Dd]ual averaging")
"""What sources and models offer are words of analyses; and a step size is averaged too."""


def mentions(analysis: AnalysisDeclaration, text: str) -> list[str]:
    """Return the lines that name an analysis, its folder or its rule, as code does: its name may be a word of every day."""
    word = "|".join(sorted({analysis.name, analysis.folder, analysis.verb}))
    owner = "layout|experiment|config|settings|spec|plan|PLAN|analyses|stages"
    found = re.compile(
        rf"""["']({word})["']\s*[],)/]|["']({word})/|\b({owner})[./]({word})(\b|_)|^\s*({word}):|rule ({word})\b|/({word})/""",
        re.IGNORECASE,
    )
    return [line.strip() for line in text.splitlines() if found.search(line) and not EXCEPTED.search(line)]


COMMANDS = {
    "recommendation": {
        "src/bayesmesh/__init__.py", "src/bayesmesh/cli.py", "src/bayesmesh/notebook/notebook_calls.py",
        "src/bayesmesh/notebook/notebook_films.py", "src/bayesmesh/analyses/recommendation/film_list_request.py",
        "src/bayesmesh/analyses/recommendation/recommend_ratings.py", "src/bayesmesh/stages/stage_recommend.py",
    },
}  # fmt: skip
"""Analysis -> code of a command of its own, here that which lists films for one user."""


@pytest.mark.parametrize("analysis", list_analyses(), ids=lambda each: each.name)
def test_no_code_outside_its_own_folder_names_an_analysis(analysis: AnalysisDeclaration) -> None:
    own = analysis.path.parent if analysis.path.stem == "analysis" else analysis.path
    assert len(CODE) > 150
    named = {
        str(path.relative_to(ROOT)): lines
        for path in CODE
        if not path.is_relative_to(own)
        and str(path.relative_to(ROOT)) not in COMMANDS.get(analysis.name, ())
        and (lines := mentions(analysis, path.read_text(encoding="utf-8")))
    }
    assert named == {}


def test_a_mention_is_found() -> None:
    (averaging,) = [each for each in list_analyses() if each.verb == "average"]
    named = [
        "layout.averaging_scores",
        "rule average:",
        '    "average",',
        "  average: results",
        "import stages.average",
    ]
    for line in [*named, 'folder / "averaging" / "scores.csv"', 'config["averaging"]', "results/averaging/scores.csv"]:
        assert mentions(averaging, line) == [line.strip()], line
    assert mentions(averaging, 'offers = ("averaging",)\n# Dual averaging\nthe average of all draws\n') == []
