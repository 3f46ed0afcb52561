"""Run the experiments of the gallery; write their pages to build/gallery and pictures of them to docs/images: make gallery."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
GALLERY, PICTURES, TUTORIALS = ROOT / "build" / "gallery", ROOT / "docs" / "images", ROOT / "docs" / "tutorials"
PROJECT = GALLERY / "project"

EXPERIMENTS = {"flats": "csv-to-decision", "flats-towns": "hierarchical-model", "flats-sweep": "sweep"}
"""Experiment -> the tutorial that shows its file."""

PAGES = {
    "report": "digits/report.html",
    "csv": "flats/report.html",
    "sweep": "flats-sweep/comparison.html",
    "comparison": "comparisons/flats.html",
}
"""Picture -> page below results/."""

SIZE = (1120, 1430)
"""Width and height of a picture, in px."""

COLOURS = 256


def main() -> int:
    """Write pages and pictures, and return the exit code."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("needs Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    if not PROJECT.exists():
        GALLERY.mkdir(parents=True, exist_ok=True)
        bayesmesh("init", str(PROJECT), folder=ROOT)
    table = shown("csv-to-decision", "python")
    subprocess.run([sys.executable, "-c", table], cwd=PROJECT, check=True)
    for name, page in EXPERIMENTS.items():
        (PROJECT / "config" / "experiments" / f"{name}.yaml").write_text(shown(page, "yaml"), encoding="utf-8")
    shutil.copy(ROOT / "config" / "experiments" / "digits.yaml", PROJECT / "config" / "experiments")
    bayesmesh("run", "--cores", "all", "digits", *EXPERIMENTS)
    bayesmesh("compare", "flats", "flats-towns", "--name", "flats")
    for name, path in PAGES.items():
        page = Path(shutil.copy(PROJECT / "results" / path, GALLERY / f"{name}.html"))
        write_picture(chromium, page, PICTURES / f"{name}.png")
        print(page.relative_to(ROOT))
    return 0


def shown(page: str, language: str) -> str:
    """Return the first block of a language in a tutorial."""
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    return text.partition(f"```{language}\n")[2].partition("```")[0]


def bayesmesh(*words: str, folder: Path = PROJECT) -> None:
    """Run a command, in the project unless another folder is given."""
    subprocess.run([sys.executable, "-m", "bayesmesh.cli", *words], cwd=folder, check=True)


def write_picture(chromium: str, page: Path, picture: Path) -> None:
    """Write a picture of the beginning of a page."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        )
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        command = [chromium, *flags, size, f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        with Image.open(shot) as taken:
            taken.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
