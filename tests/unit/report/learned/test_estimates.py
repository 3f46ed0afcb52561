"""Intervals: their side of a reference, the Monte Carlo errors of their ends against arviz_stats, and draws in blocks."""

from __future__ import annotations

from pathlib import Path

import arviz_stats
import numpy as np
import pytest

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.estimates import Estimate, errors_of_ends, read_draws
from bayesmesh.store.arrays import open_group, write_array

DRAWS = np.random.default_rng(3).normal(size=(3, 101, 4, 5)).cumsum(axis=1)


def item(index: tuple[int, ...], low: float = -1.6, high: float = 1.6) -> Coordinate:
    return Coordinate("z", index, 0.0, 1.0, low, high, 0.02, 1.0, 900.0, 800.0, is_summary=False)


@pytest.mark.parametrize("draws", [DRAWS[..., 0], DRAWS[:, :100, :, 0], DRAWS[:1, ..., 0], np.round(DRAWS[..., 0])])
def test_errors_of_ends_are_those_of_arviz(draws: np.ndarray, tmp_path: Path) -> None:
    write_array(open_group(tmp_path, "w").require_group("posterior"), "z", draws, ("chain", "draw", "a"))
    items = [item((n,)) for n in range(4)]
    found = errors_of_ends(DrawReader(tmp_path), items)
    for n, each in enumerate(items):
        errors = [
            arviz_stats.mcse(draws[..., n], chain_axis=0, draw_axis=1, method="quantile", prob=p) for p in (0.05, 0.95)
        ]
        np.testing.assert_allclose(found[each], np.ravel(errors), rtol=1e-10)


def test_errors_are_in_the_unit_of_the_page_and_need_four_draws(tmp_path: Path) -> None:
    for folder, draws in (("many", DRAWS[..., 0]), ("few", DRAWS[:, :3, :, 0])):
        write_array(open_group(tmp_path / folder, "w").require_group("posterior"), "z", draws, ("chain", "draw", "a"))
    plain, scaled = item((2,)), item((2,)).scaled(10.0)
    found = errors_of_ends(DrawReader(tmp_path / "many"), [plain, scaled])
    np.testing.assert_allclose(found[scaled], 10 * np.array(found[plain]), rtol=1e-10)
    turned = item((2,), -1.0, 2.0).scaled(-10.0)
    assert (turned.q5, turned.q95) == (-20.0, 10.0)
    assert errors_of_ends(DrawReader(tmp_path / "few"), [plain]) == {}


@pytest.mark.parametrize(
    ("low", "high", "reference", "side"), [(-1, 1, 0.0, 0), (-1, 1, None, 0), (-1, 1, 1e9, -1), (-1, 1, -1e9, 1)]
)
def test_an_interval_lies_above_or_below_its_reference_or_contains_it(
    low: float, high: float, reference: float | None, side: int
) -> None:
    assert Estimate(item((0,), low, high), reference, np.nan).side == side


def test_draws_come_in_blocks_with_the_positions_of_their_coordinates(tmp_path: Path) -> None:
    write_array(open_group(tmp_path, "w").require_group("posterior"), "z", DRAWS, ("chain", "draw", "a", "b"))
    items = [item((3, 4)), item((0, 1)), item((2, 0)), item((1, 3))]
    blocks = list(read_draws(DrawReader(tmp_path), items, block_bytes=3 * 101 * 8 * 2))
    assert len(blocks) == 4, "one coordinate at a time"
    places = [place for block, _ in blocks for place in block]
    assert sorted(places) == [0, 1, 2, 3]
    for block, draws in blocks:
        np.testing.assert_array_equal(draws[..., 0], DRAWS[:, :, *items[block[0]].index])
