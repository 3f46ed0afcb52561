"""Opens every page of the documentation's site in headless Chromium, as wide as a phone and as a laptop, and asks axe."""

from __future__ import annotations

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

AT_ONCE = 12
"""Pages in one window."""


def ask(pages: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Return what axe and the widths say of each page at each size."""
    frames = [frame(page.as_uri(), size) for page in pages for size in SIZES]
    # The search of a page opened from disk posts messages of its own.
    found = [each for each in collect(frames, folder)[0] if "wrong" in each]
    assert len(found) == len(frames)
    return found


@pytest.mark.nightly
def test_axe_finds_nothing_on_the_site_and_no_page_is_too_wide(tmp_path: Path) -> None:
    subprocess.run(["make", "site"], cwd=ROOT, check=True)
    site = shutil.copytree(ROOT / "build" / "site", tmp_path / "site")
    pages = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</body>", f"<script>{AXE}</script>{ASK}</body>"), encoding="utf-8")
    found = [each for i in range(0, len(pages), AT_ONCE) for each in ask(pages[i : i + AT_ONCE], tmp_path)]
    assert [each for each in found if each["wrong"] or each["wide"] > 0] == []
