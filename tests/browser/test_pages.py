"""Opens the pages in headless Chromium, as wide as a phone and as a laptop, and measures what a reader would see."""

from __future__ import annotations

import html
import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

SIZES = ((390, 844), (1280, 800))

DEMO = Path(__file__).parents[1] / "unit" / "report" / "demo.py"

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=4000",
    "--window-size=1400,900",
)  # fmt: skip

MEASURE = """
<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach((item) => { item.open = true; });
  const wide = (item) => item.getBoundingClientRect().right > innerWidth + 1 && !item.closest(".scroll, .plot");
  const empty = (item) => { const box = item.getBoundingClientRect(); return box.width < 20 || box.height < 8; };
  parent.postMessage({
    name: location.hash.slice(1),
    inner: [innerWidth, innerHeight],
    scrollWidth: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll("body *")].filter(wide).map((item) => item.outerHTML.slice(0, 120)),
    svgs: document.querySelectorAll("svg").length,
    empty: [...document.querySelectorAll("svg, figure, .stack, .bar")].filter(empty).map((item) => item.outerHTML.slice(0, 120)),
    clipped: [...document.querySelectorAll(".scroll")].filter((item) => getComputedStyle(item).overflowX !== "auto").length,
    smallest: Math.min(99, ...[...document.querySelectorAll("svg text")].map((item) => item.getBoundingClientRect().height)),
  }, "*");
});
</script>
"""

COLLECT = """<!DOCTYPE html><pre id="measured"></pre><script>
const found = [];
addEventListener("message", (event) => {
  found.push(event.data);
  document.getElementById("measured").textContent = JSON.stringify(found);
});
</script>
"""


def find_chromium() -> str:
    """Return the path of Chromium; without one the tests are skipped, in CI they fail."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail("Chromium is not installed, and in CI the pages must be looked at: apt-get install chromium")
    pytest.skip("Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str, int]:
    """Measurements of every page at every size, what Chromium logged, and how many there must be."""
    chromium = find_chromium()
    folder = tmp_path_factory.mktemp("pages")
    frames = []
    pages = runpy.run_path(str(DEMO))["write_demo"](folder / "results")
    for number, page in enumerate(pages):
        copy = folder / f"copy-{number}.html"
        copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
        frames += [
            f'<iframe src="{copy.as_uri()}#{page.parent.name}-{width}" style="width:{width}px;height:{height}px;border:0"></iframe>'
            for width, height in SIZES
        ]
    (folder / "frames.html").write_text(COLLECT + "\n".join(frames), encoding="utf-8")
    command = [
        chromium,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        (folder / "frames.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    measured = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert measured is not None, done.stderr
    return json.loads(html.unescape(measured[1]) or "[]"), done.stderr, len(frames)


def test_every_page_was_opened_at_every_size(opened: tuple[list[dict[str, Any]], str, int]) -> None:
    found, _, expected = opened
    assert len(found) == expected
    assert {tuple(page["inner"]) for page in found} == set(SIZES)


def test_no_page_is_wider_than_its_window(opened: tuple[list[dict[str, Any]], str, int]) -> None:
    for page in opened[0]:
        assert page["scrollWidth"] <= page["inner"][0], (page["name"], page["wide"])
        assert page["wide"] == [], page["name"]
        assert page["clipped"] == 0, page["name"]


def test_every_drawing_has_a_size_and_its_text_can_be_read(opened: tuple[list[dict[str, Any]], str, int]) -> None:
    for page in opened[0]:
        assert page["empty"] == [], page["name"]
        if not page["name"].startswith("results"):
            assert page["svgs"] > 10, page["name"]
            assert page["smallest"] >= 8, page["name"]


def test_the_console_is_silent(opened: tuple[list[dict[str, Any]], str, int]) -> None:
    assert [line for line in opened[1].splitlines() if "CONSOLE" in line] == []
