"""Rows of summary.csv from coordinates that a test writes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesmesh.report.diagnostics_tables import STATISTICS, Coordinate, Coordinates


def in_columns(items: Sequence[Coordinate]) -> Coordinates:
    """Return coordinates as `read_summary` would."""
    variables = list(dict.fromkeys(item.variable for item in items))
    return Coordinates(
        variables,
        np.array([variables.index(item.variable) for item in items]),
        np.array([",".join(map(str, item.index)) for item in items], object),
        np.array([item.names for item in items], object),
        {name: np.array([getattr(item, name) for item in items]) for name in STATISTICS},
        np.array([item.is_summary for item in items]),
        np.array([item.scale for item in items]),
        {item.variable: item.shown for item in items if item.shown},
    )
