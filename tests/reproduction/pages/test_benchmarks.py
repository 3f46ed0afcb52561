"""The page of benchmarks: measurements, missing ones with the reason, ratios with gates, standalone figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bayesmesh_reproduction.benchmarks.harness import Measurement, Outcome, Ratio
from bayesmesh_reproduction.benchmarks.history import write_outcome
from bayesmesh_reproduction.layout import BenchmarkLayout
from bayesmesh_reproduction.pages.benchmarks import FIGURES, read_section, write_benchmark_page


def metropolis(results: Path) -> BenchmarkLayout:
    """Two contenders over two sizes of each sweep; one reaches its time limit on the second."""
    measured = []
    for arm, x in (("samples", "samples"), ("chains", "chains")):
        for size in (10, 1000):
            case = {"arm": arm, "chains": 1000, "samples": 1000, x: size}
            measured.append(Measurement(case, "ours", "ok", "", [0.01, 0.02, 0.03], {"compile_s": 1.0}, 200.0))
            slow = Measurement(case, "<slow>", "ok", "", [1.0 * size], {"compile_s": 0.0}, 20.0)
            if size == 1000:
                slow = Measurement(case, "<slow>", "time limit", "run: more than 5 s", peak_mib=20.0)
            measured.append(slow)
    rows = [m.row() | ({"with_compile_s": m.facts["compile_s"] + 1} if m.seconds else {}) for m in measured]
    layout = BenchmarkLayout(results)
    ratios = [
        Ratio("samples 10", "ours", "<slow>", 500.0, 333.0, 1000.0, 3, 20.0),
        Ratio("x", "ours", "y", 0.5, 0.4, 0.6, 3, 1.0),
    ]
    write_outcome(layout, "metropolis", Outcome(rows, ratios))
    return layout


def test_the_page_shows_measurements_and_limits(tmp_path: Path) -> None:
    layout = metropolis(tmp_path)
    page = write_benchmark_page(tmp_path, [("metropolis", "what & how"), ("later", "not run")])
    text = page.read_text(encoding="utf-8")
    assert page == layout.page
    for said in (
        "what &amp; how",
        "time limit: run: more than 5 s",
        "holds: at least 20",
        "failed: at least 1",
        "× 500",
    ):
        assert said in text
    assert "<slow>" not in text
    assert "not run" not in text
    assert "0.02000 (0.0100 to 0.0300)" in text
    assert text.count('class="plot"') == len(FIGURES["metropolis"])


def test_figures_are_documents_with_their_own_colours(tmp_path: Path) -> None:
    layout = metropolis(tmp_path)
    write_benchmark_page(tmp_path, [("metropolis", "")])
    for figure in FIGURES["metropolis"]:
        text = layout.figure(figure.stem).read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)  # noqa: S314 - our own
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert figure.labels[0] in text
        assert "--series-0: #" in text


def test_panels_with_one_unit_share_their_axis(tmp_path: Path) -> None:
    panels = read_section(metropolis(tmp_path), "metropolis", "about").panels
    labels = {stem: re.findall(r">([\d.,]+)</text>", panel.svg) for stem, panel in panels.items()}
    heights = {stem: [float(text.replace(",", "")) for text in texts[-3:]] for stem, texts in labels.items()}
    of_seconds = {tuple(ticks) for stem, ticks in heights.items() if "memory" not in stem}
    assert len(of_seconds) == 1, heights


def test_a_contender_without_a_time_has_no_point(tmp_path: Path) -> None:
    section = read_section(metropolis(tmp_path), "metropolis", "")
    assert [is_timed for _, is_timed in section.rows] == [True, True, True, False] * 2
    assert "min s" not in section.columns
    assert "<slow>" not in section.panels["metropolis-samples"].svg


def test_a_page_without_benchmarks_names_the_command(tmp_path: Path) -> None:
    assert "make bench" in write_benchmark_page(tmp_path, []).read_text(encoding="utf-8")
