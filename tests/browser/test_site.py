"""Opens every page of the documentation's site in headless Chromium, as wide as a phone and as a laptop, and asks axe and the search."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chromium import AXE, SIZES, collect, frame

ROOT = Path(__file__).parents[2]

ASK = """<script>addEventListener("load", async () => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const { violations } = await axe.run(document);
  parent.postMessage({ page: location.pathname, wide, wrong: violations.map(each => `${each.id}: ${each.nodes[0].html}`) }, "*");
});</script>"""

TYPE = """<script>addEventListener("load", () => {
  const field = document.querySelector("input[name=query]");
  field.value = %s;
  field.focus();
  field.dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
  const waiting = setInterval(() => {
    field.dispatchEvent(new KeyboardEvent("keyup"));
    const hits = [...document.querySelectorAll(".md-search-result__item")].slice(0, 3);
    if (!hits.length) return;
    clearInterval(waiting);
    const pages = hits.map(hit => new URL(hit.querySelector("a").href).pathname.split("/site/")[1]);
    parent.postMessage({ question: field.value, pages }, "*");
  }, 100);
});</script>"""

ANSWERS = {
    "Which kernel should I use?": "docs/explanation/kernels.html",
    "How do I add draws to a finished run?": "docs/explanation/reliability.html",
    "How do I predict for new rows?": "docs/how-to/prediction.html",
    "What does the verdict warn mean?": "docs/how-to/experiment.html",
    "How do I cite it?": "docs/citing.html",
    "How do I set a prior on a coefficient?": "docs/how-to/formula.html",
    "How do I open the posterior in ArviZ?": "docs/reference/results.html",
    "How do I use a GPU?": "docs/how-to/installation.html",
    "How do I fit random slopes?": "docs/how-to/formula.html",
}
"""Question -> the page that answers it."""

AT_ONCE = 12
"""Pages in one window."""


def ask(pages: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Return what axe and the widths say of each page at each size."""
    frames = [frame(page.as_uri(), size) for page in pages for size in SIZES]
    # The search of a page opened from disk posts messages of its own.
    found = [each for each in collect(frames, folder)[0] if "wrong" in each]
    assert len(found) == len(frames)
    return found


@pytest.fixture
def site(tmp_path: Path) -> Path:
    subprocess.run(["make", "site"], cwd=ROOT, check=True)
    return shutil.copytree(ROOT / "build" / "site", tmp_path / "site")


@pytest.mark.nightly
def test_a_question_in_words_finds_its_page_among_the_first_three(site: Path, tmp_path: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?:', text), (
        "opened from disk, it needs no network"
    )
    page = site / "question.html"
    # One after the other: only one page of a window has the focus, without which the search does not start.
    for question, answer in ANSWERS.items():
        page.write_text(text.replace("</body>", f"{TYPE % json.dumps(question)}</body>"), encoding="utf-8")
        found = [each for each in collect([frame(page.as_uri(), SIZES[1])], tmp_path)[0] if "question" in each]
        assert [each["question"] for each in found] == [question]
        assert answer in found[0]["pages"], question


@pytest.mark.nightly
def test_axe_finds_nothing_on_the_site_and_no_page_is_too_wide(site: Path, tmp_path: Path) -> None:
    pages = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</body>", f"<script>{AXE}</script>{ASK}</body>"), encoding="utf-8")
    found = [each for i in range(0, len(pages), AT_ONCE) for each in ask(pages[i : i + AT_ONCE], tmp_path)]
    assert [each for each in found if each["wrong"] or each["wide"] > 0] == []
