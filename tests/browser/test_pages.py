"""Opens the pages in headless Chromium, as wide as a phone and as a laptop, and measures what a reader would see."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from PIL import Image

from chromium import AXE, FLAGS, SIZES, collect, find_chromium, frame

pytestmark = pytest.mark.browser

SHOWN_HEIGHT = 2600
"""Height of a page in the screenshots, in px."""

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""Kept after the tests, to look at."""

DEMO = Path(__file__).parents[1] / "unit" / "report" / "demo.py"

Opened = tuple[list[dict[str, Any]], str, int, list[Path]]

MEASURE = (Path(__file__).with_name("measure.js")).read_text(encoding="utf-8")


def with_measures(page: str) -> str:
    """Add the scripts that measure, and their digests to the policy that would refuse them."""
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (AXE, MEASURE)]
    allowed = page.replace("script-src '", f"script-src {' '.join(f"'sha256-{each}'" for each in digests)} '", 1)
    assert allowed != page
    return allowed.replace("</body>", f"<script>{AXE}</script><script>{MEASURE}</script></body>")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Measurements of every page at every size, what Chromium logged, how many there must be, and the pages."""
    folder = tmp_path_factory.mktemp("pages")
    frames = []
    pages = runpy.run_path(str(DEMO))["write_demo"](folder / "results")
    for number, page in enumerate(pages):
        # As Snakemake's report holds it.
        inside = "data/raw/b934e02daf53a882" if page.parent.name == "stuck" else "."
        copy = folder / inside / f"copy-{number}.html"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(with_measures(page.read_text(encoding="utf-8")), encoding="utf-8")
        frames += [frame(f"{copy.as_uri()}#{page.parent.name}-{size[0]}", size) for size in SIZES]
    found, log = collect(frames, folder)
    return found, log, len(frames), pages


def experiments(opened: Opened) -> list[dict[str, Any]]:
    """The measurements of pages of experiments; the index has another name."""
    found = [page for page in opened[0] if not page["name"].startswith("results")]
    assert found
    return found


def test_every_page_was_opened_at_every_size(opened: Opened) -> None:
    found, _, expected, _ = opened
    assert len(found) == expected
    assert {tuple(page["inner"]) for page in found} == set(SIZES)


def test_no_page_is_wider_than_its_window(opened: Opened) -> None:
    for page in opened[0]:
        assert page["scrollWidth"] <= page["inner"][0], (page["name"], page["wide"])
        assert page["wide"] == [], page["name"]
        assert page["clipped"] == 0, page["name"]


def test_every_drawing_has_a_size_and_its_text_can_be_read(opened: Opened) -> None:
    for page in opened[0]:
        assert page["empty"] == [], page["name"]
        if not page["name"].startswith("results"):
            assert page["svgs"] > 10, page["name"]
            assert page["smallest"] >= 8, page["name"]


def test_the_console_is_silent(opened: Opened) -> None:
    assert [line for line in opened[1].splitlines() if "CONSOLE" in line] == []


def test_everything_has_a_name_and_no_text_is_too_pale(opened: Opened) -> None:
    for page in opened[0]:
        assert page["nameless"] == [], page["name"]
        assert page["repeatedIds"] == [], page["name"]
        assert page["skippedHeadings"] == [], page["name"]
        assert page["jumps"] == 0, "focus follows the order of the page"
        assert page["pale"] == [], page["name"]
        assert page["darkSurface"] == "rgb(20, 23, 27)", "the dark colours were measured"
        assert page["paleInDark"] == [], page["name"]


def test_every_control_is_reached_by_keyboard_and_axe_finds_nothing(opened: Opened) -> None:
    for page in opened[0]:
        assert page["unreachable"] == [], page["name"]
        assert page["axe"]["violations"] == [], page["name"]
        assert page["axe"]["passed"] > 15, page["name"]


def test_screenshots_are_kept(opened: Opened, tmp_path: Path) -> None:
    """One picture of all pages, as wide as a phone and as a laptop."""
    frames = "\n".join(frame(page.as_uri(), (width, SHOWN_HEIGHT)) for page in opened[3] for width, _ in SIZES)
    every = tmp_path / "screenshots.html"
    width = sum(width for width, _ in SIZES) + 40
    every.write_text(f"<!DOCTYPE html><body style='margin:0;width:{width}px'>{frames}", encoding="utf-8")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    picture = SCREENSHOTS / "pages.png"
    picture.unlink(missing_ok=True)
    flags = [flag for flag in FLAGS if not flag.startswith("--window-size")]
    size = f"--window-size={width},{len(opened[3]) * (SHOWN_HEIGHT + 10)}"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [find_chromium(), *flags, size, profile, f"--screenshot={picture}", every.as_uri()]
    subprocess.run(command, capture_output=True, timeout=300, check=True)
    with Image.open(picture) as shown:
        assert shown.size == (width, len(opened[3]) * (SHOWN_HEIGHT + 10))
        assert len(shown.convert("RGB").resize((400, 400)).getcolors(160_000) or ()) > 200, "more than an empty page"


def test_the_verdict_of_every_gate_is_in_sight(opened: Opened) -> None:
    for page in experiments(opened):
        assert page["gates"] >= 5, page["name"]
        assert page["gatesCut"] == 0, page["name"]


def test_contents_stay_in_sight_and_say_where_the_reader_is(opened: Opened) -> None:
    for page in experiments(opened):
        assert page["contentsTop"] == 0, page["name"]
        assert page["current"] == "#repeat", page["name"]


def test_tables_are_sorted_filtered_and_saved(opened: Opened) -> None:
    for page in experiments(opened):
        table = page["table"]
        assert table["sorted"] == ["ascending", "descending"], page["name"]
        assert table["ascending"] == sorted(table["ascending"]), page["name"]
        assert table["descending"] == sorted(table["ascending"], reverse=True), page["name"]
        assert 0 < table["kept"] < table["rows"], page["name"]
        assert table["status"] == f"{table['kept']} of {table['rows']} rows", page["name"]
        rows = list(csv.DictReader(io.StringIO(table["csv"])))
        assert len(rows) == table["kept"], "what is filtered out is not saved"
        assert {"Quantity", "Mean", "5%", "95%", "MCSE of mean"} <= rows[0].keys()
        assert rows[0]["Quantity"] == "'=1+1", "no spreadsheet computes it"
        assert len(rows[0]["Mean"].split(".")[1]) > 6, "more digits than are shown"
        stored = pyarrow.parquet.read_table(pyarrow.BufferReader(bytes(table["parquet"]))).to_pandas()
        assert list(stored.columns) == list(rows[0])
        assert stored["Quantity"].tolist() == ["=1+1", *(row["Quantity"] for row in rows[1:])]
        assert stored["Mean"].tolist() == [float(row["Mean"]) for row in rows]


def test_one_of_the_users_is_shown_alone(opened: Opened) -> None:
    found = [page["picker"] for page in experiments(opened) if "picker" in page]
    assert found
    for each in found:
        names = each["names"]
        assert names[0] == f"All {len(names) - 1}" == f"All {each['every']}"
        assert (each["one"], each["last"]) == ([names[1]], [names[-1]])


def test_figures_are_saved_and_chains_switched_off(opened: Opened) -> None:
    for page in experiments(opened):
        assert page["svg"] == {"root": "svg", "variables": 0, "width": True, "tips": True}, page["name"]
        assert page["png"].startswith("data:image/png;base64,"), page["name"]
        assert page["faded"] == {"isOwn": False, "some": True, "restored": True}, page["name"]
        assert page["chains"]["lines"] > 4, page["name"]
        assert page["chains"]["hidden"] == page["chains"]["lines"], page["name"]
        assert page["chains"]["others"] == 0, page["name"]


def test_no_link_leads_nowhere_inside_of_a_report_of_snakemake(opened: Opened) -> None:
    for page in experiments(opened):
        assert (page["links"] == 0) == page["name"].startswith("stuck"), page["name"]
        assert page["anchors"] == [], page["name"]
