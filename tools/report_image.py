"""Write docs/images/report.png, the beginning of the page of `digits`, by headless Chromium: snakemake digits, then this."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PAGE, PICTURE = Path("results/digits/report.html"), Path("docs/images/report.png")

SIZE = (1120, 1430)
"""Width and height, in px."""

COLOURS = 256


def main() -> int:
    """Write the picture and return the exit code."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or not PAGE.exists():
        print(f"needs Chromium and {PAGE}: apt-get install chromium; snakemake --cores all digits")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        subprocess.run(
            [chromium, *options, size, f"--screenshot={shot}", PAGE.resolve().as_uri()], check=True, capture_output=True
        )
        with Image.open(shot) as picture:
            picture.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
