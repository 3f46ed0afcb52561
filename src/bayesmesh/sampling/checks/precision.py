"""Check that fields keep their values on a device, as 32-bit integers or the experiment's floating-point numbers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator

import jax
import numpy as np

from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models._traced_fields import fields_used
from bayesmesh.models.base import HostRows, Model
from bayesmesh.models.glm.moments import Moments, join_moments, moments_of
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.store.layout import MOST_ROUNDED

_log = logging.getLogger("bayesmesh")

REMEDY = "set `compute: {dtype: float64}`, or subtract what the values have in common, with `standardise` in the data"


def check_precision(spec: DataSpec, blocks: Iterable[HostRows]) -> None:
    """Refuse integers that would wrap around, and warn about numbers whose differences are lost to rounding.

    Args:
        spec: description of the data, in the experiment's dtype.
        blocks: all rows as stored.

    Raises:
        ConfigError: an integer needs more than 32 bits in a float32 experiment.
    """
    for name, errors in rounded_fields(spec, _without_wide_integers(spec, blocks)).items():
        _log.warning(
            "warning: float32 rounds the field '%s' by %.2g standard errors of its mean, because its differences are small "
            "beside its values: %s", name, errors, REMEDY,
        )  # fmt: skip


def _without_wide_integers(spec: DataSpec, blocks: Iterable[HostRows]) -> Iterator[HostRows]:
    for rows in blocks:
        for name, values in rows.items():
            if values.dtype.itemsize > 4 and values.dtype.kind in "iu":
                _check_whole(name, values, spec.fields[name].num_codes)
        yield rows


def _check_whole(name: str, values: np.ndarray, num_codes: int) -> None:
    most = np.iinfo("uint32" if values.dtype.kind == "u" else "int32")
    largest = max(int(values.max(initial=0)), num_codes - 1)
    if largest > most.max or int(values.min(initial=0)) < most.min:
        number = largest if largest > most.max else int(values.min())
        raise ConfigError(
            f"field '{name}' holds {number:,}, and whole numbers on a device have 32 bits: it would become another one",
            f"set `compute: {{dtype: float64}}`, declare identifiers as a category (types: {{{name}: category}}), or leave the field out",
        )


def rounded_fields(spec: DataSpec, blocks: Iterable[HostRows]) -> dict[str, float]:
    """Return field -> rounding of its values by float32, in standard errors of its mean, if this is more than `MOST_ROUNDED`.

    Args:
        spec: description of the data, in the experiment's dtype; in float64 nothing is rounded.
        blocks: all rows as stored.
    """
    if spec.dtype != "float32" or all(np.dtype(field.dtype).itemsize <= 4 for field in spec.fields.values()):
        return {}
    found: dict[str, Moments] = {}
    for rows in blocks:
        for name, values in rows.items():
            if values.dtype.kind == "f" and values.dtype.itemsize > 4 and values.size:
                # For a model that takes all data as one row, the values are in that row.
                values = values[0] if spec.num_rows == 1 and values.ndim > 1 else values
                # A bound that a row does not have is infinite, in float32 as well.
                if (finite := np.isfinite(values.reshape(len(values), -1)).all(axis=1)).any():
                    own = _with_errors(values[finite])
                    found[name] = join_moments(found[name], own) if name in found else own
    errors = {name: lost_share(moments) * math.sqrt(moments.num_rows) for name, moments in found.items()}
    return {name: error for name, error in errors.items() if error > MOST_ROUNDED}


def _with_errors(values: np.ndarray) -> Moments:
    """Return the moments of the columns of an array (row, ...), followed by those of their rounding to float32."""
    columns = values.reshape(len(values), -1)
    return moments_of([np.concatenate([columns, columns - columns.astype(np.float32)], axis=1)])


def lost_share(moments: Moments) -> float:
    """Return the largest share of a column's standard deviation that is lost by rounding to float32, over columns that vary.

    >>> noise = np.random.default_rng(0).standard_normal(1000)
    >>> of_all = [lost_share(_with_errors(values)) for values in (noise, 1e8 + noise, np.full(3, 0.1))]
    >>> of_all[0] < 1e-6, of_all[1] > 0.5, of_all[2]
    (True, True, 0.0)
    """
    sd, error = np.split(moments.sd, 2)
    # Values that are equal up to float64 rounding do not vary.
    varies = sd > 1e-12 * np.abs(moments.mean[: len(sd)])
    return float(np.divide(error, sd, out=np.zeros_like(sd), where=varies).max(initial=0.0))


def fields_read(model: Model, spec: DataSpec) -> frozenset[str]:
    """Return the fields of the data that enter the log likelihood, by tracing it.

    Args:
        model: the model, bound to the data.
        spec: description of the data.
    """
    latents = jax.eval_shape(lambda: dict(model.prior(spec).sample(seed=jax.random.key(0))))
    aligned, rows = resize_local(latents, model.local_latents, spec.num_rows), row_shapes(spec, spec.num_rows)
    return fields_used(lambda rows, latents: model.log_likelihood(latents, rows), rows, aligned)
