"""Opens pages in headless Chromium, in frames as wide as a phone and as a laptop, and collects what they post."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

SIZES = ((390, 844), (1440, 900))

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=600000",
    "--window-size=1400,900",
)  # fmt: skip
"""The virtual time ends at once where nothing waits; decoding an image takes real time, in which much of it passes."""

AXE = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")

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


def frame(address: str, size: tuple[int, int]) -> str:
    """Return a frame that shows a page at a size."""
    return f'<iframe src="{address}" style="width:{size[0]}px;height:{size[1]}px;border:0"></iframe>'


def collect(frames: Sequence[str], folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Return what the pages of the frames post, and what Chromium logs."""
    window = folder / "frames.html"
    window.write_text(COLLECT + "\n".join(frames), encoding="utf-8")
    command = [find_chromium(), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", window.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    measured = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert measured is not None, done.stderr
    return json.loads(html.unescape(measured[1]) or "[]"), done.stderr
