"""Write docs/images/flow.svg, the stages of an experiment and what a change runs again; --check compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bayesmesh.workflow.flow import LATER, STAGES

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "flow.svg"

WRITES = {
    "fetch": "dataset", "shard": "shards", "compile": "program", "sample": "chains",
    "assemble": "posterior", "diagnose": "verdict", "analyse": "tables", "report": "page",
}  # fmt: skip
"""Stage -> what it writes."""

CHANGES = {
    "data": ("fetch", (), "other data, new chains"),
    "model, kernel or prior": ("compile", (), "new chains; the old ones are kept"),
    "more draws": ("sample", (), "chains are extended"),
    "a gate": ("diagnose", ("analyse",), "chains are kept"),
    "an analysis": ("analyse", (), "chains are kept"),
}
"""A change -> the first stage that runs again, later stages that do not, and what becomes of the chains."""

WIDTH, HEIGHT, GAP = 96, 46, 16


def lines() -> Iterator[str]:
    """Yield the lines of the picture."""
    stages = [*(stage for stage in STAGES if stage not in LATER and stage != "report"), "analyse", "report"]
    left = {stage: 200 + number * (WIDTH + GAP) for number, stage in enumerate(stages)}
    right = left["report"] + WIDTH
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 280} {90 + 34 * len(CHANGES)}" role="img" '
    yield 'font-family="sans-serif" font-size="14" text-anchor="middle">'
    yield "<title>The stages of an experiment, and what a change runs again</title>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    for stage in stages:
        x = left[stage]
        yield f'<rect x="{x}" y="10" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#e8eefc" stroke="#3553a4"/>'
        yield f'<text x="{x + WIDTH // 2}" y="29" font-weight="bold">{stage}</text>'
        yield f'<text x="{x + WIDTH // 2}" y="47" fill="#333333">{WRITES[stage]}</text>'
        if stage != stages[-1]:
            yield f'<path d="M{x + WIDTH} 33h{GAP}" stroke="#3553a4" stroke-width="2"/>'
    for number, (change, (first, unaffected, result)) in enumerate(CHANGES.items()):
        y = 78 + 34 * number
        yield f'<text x="190" y="{y + 17}" text-anchor="end">{change}</text>'
        for stage in stages[stages.index(first) :]:
            if stage not in unaffected:
                yield f'<rect x="{left[stage]}" y="{y}" width="{WIDTH}" height="26" rx="4" fill="#3553a4"/>'
                yield f'<text x="{left[stage] + WIDTH // 2}" y="{y + 18}" fill="#ffffff">again</text>'
        yield f'<text x="{right + 12}" y="{y + 18}" text-anchor="start">{result}</text>'
    yield "</svg>"


def main() -> int:
    """Write the picture, or say that it is out of date."""
    text = "\n".join(lines()) + "\n"
    if "--check" not in sys.argv:
        PICTURE.write_text(text, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != text:
        print("docs/images/flow.svg is out of date\n  remedy: make schema", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
