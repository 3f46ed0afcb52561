"""Intervals and their Monte Carlo errors, against arviz_stats, in blocks and in order."""

from __future__ import annotations

from pathlib import Path

import arviz_stats
import numpy as np
import pytest

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.estimates import measure_intervals, read_draws
from bayesmesh.store.arrays import open_group, write_array

DRAWS = np.random.default_rng(3).normal(size=(3, 101, 4, 5)).cumsum(axis=1)


def item(index: tuple[int, ...], variable: str = "z", mean: float = 0.0, *, is_summary: bool = False) -> Coordinate:
    return Coordinate(variable, index, mean, 1.0, 0.02, 1.0, 900.0, 800.0, is_summary=is_summary)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> DrawReader:
    path = tmp_path_factory.mktemp("estimates") / "posterior.zarr"
    root = open_group(path, "w")
    write_array(root.require_group("posterior"), "z", DRAWS, ("chain", "draw", "a", "b"))
    odd = DRAWS[:, :, 0, 0].copy()
    odd[1, 7] = np.inf
    write_array(root.require_group("summaries"), "odd", odd, ("chain", "draw"))
    write_array(root.require_group("truth"), "odd", np.array(2.5), ())
    return DrawReader(path)


@pytest.mark.parametrize("draws", [DRAWS[..., 0], DRAWS[:, :100, :, 0], DRAWS[:1, ..., 0], np.round(DRAWS[..., 0])])
def test_errors_of_ends_are_those_of_arviz(draws: np.ndarray, tmp_path: Path) -> None:
    write_array(open_group(tmp_path, "w").require_group("posterior"), "z", draws, ("chain", "draw", "a"))
    found = measure_intervals(DrawReader(tmp_path), [item((n,)) for n in range(4)], [None] * 4, with_errors=True)
    for n, each in enumerate(found):
        errors = [
            arviz_stats.mcse(draws[..., n], chain_axis=0, draw_axis=1, method="quantile", prob=p) for p in (0.05, 0.95)
        ]
        np.testing.assert_allclose((each.low_error, each.high_error), np.ravel(errors), rtol=1e-10)


def test_intervals_come_in_the_order_of_the_coordinates_and_from_blocks(reader: DrawReader) -> None:
    items = [item((3, 4)), item((0, 1)), item((2, 0)), item((1, 3))]
    found = measure_intervals(reader, items, [0.0, None, 1e9, -1e9], with_errors=True)
    for each in found:
        draws = DRAWS[:, :, *each.item.index]
        np.testing.assert_allclose((each.low, each.high), np.quantile(draws, (0.05, 0.95)), rtol=1e-12)
        assert each.low_error > 0
    assert [each.side for each in found[1:]] == [0, -1, 1]
    blocks = list(read_draws(reader, items, block_bytes=3 * 101 * 8 * 2))
    assert len(blocks) == 4, "one coordinate at a time"
    places = [place for block, _ in blocks for place in block]
    assert sorted(places) == [0, 1, 2, 3]
    for block, draws in blocks:
        np.testing.assert_array_equal(draws[..., 0], DRAWS[:, :, *items[block[0]].index])
