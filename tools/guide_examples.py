"""Write the source files that the guides show into a folder, side by side, for the type checker."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(ROOT.glob("docs/how-to/*.md"))
NAMED = re.compile(r"^`([\w./-]+)`:\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example_files() -> dict[str, str]:
    """Return path -> text of every file that the guides show in full."""
    pages = (page.read_text(encoding="utf-8") for page in PAGES)
    return {found[1]: found[3] for text in pages for found in NAMED.finditer(text)}


def main(folder: Path) -> None:
    """Replace a folder by one with the modules of the package that the guides show."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in example_files().items():
        if name.startswith("src/"):
            (folder / Path(name).name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
