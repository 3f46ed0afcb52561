"""Check that fields keep their values on a device: whole numbers of 32 bits, and the experiment's floating-point numbers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError

_log = logging.getLogger("bayesmesh")

MOST_LOST = 1e-3
"""Share of a field's standard deviation that rounding may take."""


def check_precision(spec: DataSpec, rows: Mapping[str, np.ndarray]) -> None:
    """Refuse whole numbers that would wrap around, and warn of numbers whose differences rounding takes.

    Args:
        spec: of the data, in the experiment's dtype.
        rows: field -> (row, ...), the first rows as they are stored.

    Raises:
        ConfigError: a whole number has more than 32 bits where the experiment has.
    """
    if spec.dtype != "float32":
        return
    for name, values in rows.items():
        if values.dtype.itemsize <= 4:
            continue
        if values.dtype.kind in "iu":
            _check_whole(name, values, spec.fields[name].num_codes)
        elif values.dtype.kind == "f" and len(values) and (lost := lost_share(values)) > MOST_LOST:
            _log.warning(
                "warning: field '%s' loses %.2g of its standard deviation in float32, because it is small beside its values: subtract "
                "what they have in common, with `standardise` in the data, or set `compute: {dtype: float64}`", name, lost,
            )  # fmt: skip


def _check_whole(name: str, values: np.ndarray, num_codes: int) -> None:
    most = np.iinfo("uint32" if values.dtype.kind == "u" else "int32")
    largest = max(int(values.max(initial=0)), num_codes - 1)
    if largest > most.max or int(values.min(initial=0)) < most.min:
        number = largest if largest > most.max else int(values.min())
        raise ConfigError(
            f"field '{name}' holds {number:,}, and whole numbers on a device have 32 bits: it would become another one",
            f"set `compute: {{dtype: float64}}`, declare identifiers as a category (types: {{{name}: category}}), or leave the field out",
        )


def lost_share(values: np.ndarray) -> float:
    """Return the largest share of a column's standard deviation that rounding to float32 takes, of columns that vary.

    >>> noise = np.random.default_rng(0).standard_normal(1000)
    >>> lost_share(noise) < 1e-6, lost_share(1e8 + noise) > 0.5, lost_share(np.full(3, 0.1))
    (True, True, 0.0)
    """
    # A model that takes all rows as one has them in one row.
    values = values[0] if len(values) == 1 and values.ndim > 1 else values
    columns = values.reshape(len(values), -1)
    sd, error = columns.std(axis=0), (columns - columns.astype(np.float32)).std(axis=0)
    return float(np.divide(error, sd, out=np.zeros_like(sd), where=sd > 0).max(initial=0.0))
