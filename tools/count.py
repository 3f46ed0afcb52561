"""Print files and lines of code, without comments, docstrings and blank lines: `python tools/count.py`."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip


def code_lines(text: str) -> int:
    """Return the number of lines that hold code: tokens other than comments and docstrings."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(text)):
        # Strings that stand alone describe what is above them.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in NO_CODE)
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - docstrings)


def files_of(*folders: Path) -> list[Path]:
    """Return the Python files below folders."""
    return [path for folder in folders for path in folder.rglob("*.py")]


def report(name: str, files: Iterable[Path]) -> None:
    """Print a line of the table."""
    counts = [code_lines(path.read_text(encoding="utf-8")) for path in files]
    print(f"{name:32} {len(counts):6,} files {sum(counts):8,} lines")


def main() -> None:
    """Print a line for each package and for the tests."""
    packages = sorted(path.parent for path in ROOT.glob("src/*/__init__.py"))
    for package in packages:
        report(f"src/{package.name}", files_of(package))
    report("tests", files_of(ROOT / "tests"))
    report("tools", files_of(ROOT / "tools"))


if __name__ == "__main__":
    sys.exit(main())
