"""Check that fields keep their values on a device, as 32-bit integers or the experiment's floating-point numbers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import jax
import numpy as np

from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.sampling.chain_position import resize_local
from bayesmesh.sampling.sampling_density import device_dtype
from bayesmesh.store.layout import MOST_ROUNDED

_log = logging.getLogger("bayesmesh")

REMEDY = "set `compute: {dtype: float64}`, or subtract what the values have in common, with `standardise` in the data"


def check_precision(spec: DataSpec, rows: Mapping[str, np.ndarray]) -> None:
    """Refuse integers that would wrap around, and warn about numbers whose differences are lost to rounding.

    Args:
        spec: description of the data, in the experiment's dtype.
        rows: field -> (row, ...), the first rows as stored.

    Raises:
        ConfigError: an integer needs more than 32 bits in a float32 experiment.
    """
    if spec.dtype != "float32":
        return
    for name, values in rows.items():
        if values.dtype.itemsize > 4 and values.dtype.kind in "iu":
            _check_whole(name, values, spec.fields[name].num_codes)
    for name, errors in rounded_fields(spec, rows).items():
        _log.warning(
            "warning: float32 rounds the field '%s' by %.2g standard errors of its mean, because its differences are small "
            "beside its values: %s", name, errors, REMEDY,
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


def rounded_fields(spec: DataSpec, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return field -> rounding of its values by float32, in standard errors of its mean, if this is more than `MOST_ROUNDED`.

    Args:
        spec: description of the data, in the experiment's dtype; in float64 nothing is rounded.
        rows: field -> (row, ...), the first rows as stored.
    """
    if spec.dtype != "float32":
        return {}
    found = {}
    for name, values in rows.items():
        if values.dtype.kind == "f" and values.dtype.itemsize > 4 and len(values):
            # For a model that takes all data as one row, the values are in that row.
            is_whole = len(values) == 1 and values.ndim > 1
            num_rows = values.shape[1] if is_whole else spec.num_rows
            found[name] = lost_share(values[0] if is_whole else values) * math.sqrt(num_rows)
    return {name: errors for name, errors in found.items() if errors > MOST_ROUNDED}


def lost_share(values: np.ndarray) -> float:
    """Return the largest share of a column's standard deviation that is lost by rounding to float32, over columns that vary.

    >>> noise = np.random.default_rng(0).standard_normal(1000)
    >>> lost_share(noise) < 1e-6, lost_share(1e8 + noise) > 0.5, lost_share(np.full(3, 0.1))
    (True, True, 0.0)
    """
    columns = values.reshape(len(values), -1)
    sd, error = columns.std(axis=0), (columns - columns.astype(np.float32)).std(axis=0)
    # Values that are equal up to float64 rounding do not vary.
    varies = sd > 1e-12 * np.abs(columns).max(axis=0, initial=0.0)
    return float(np.divide(error, sd, out=np.zeros_like(sd), where=varies).max(initial=0.0))


def fields_read(model: Model, spec: DataSpec) -> frozenset[str]:
    """Return the fields of the data that enter the log likelihood, by tracing it.

    Args:
        model: the model, bound to the data.
        spec: description of the data.
    """
    latents = jax.eval_shape(lambda: dict(model.prior(spec).sample(seed=jax.random.key(0))))
    dtype = np.dtype(spec.dtype)
    names = sorted(spec.fields)
    rows = {
        k: jax.ShapeDtypeStruct((spec.num_rows, *spec.fields[k].shape), device_dtype(spec.fields[k].dtype, dtype))
        for k in names
    }
    jaxpr = jax.make_jaxpr(model.log_likelihood)(resize_local(latents, model.local_latents, spec.num_rows), rows).jaxpr
    used = {id(v) for each in jaxpr.eqns for v in each.invars} | {id(v) for v in jaxpr.outvars}
    return frozenset(name for name, v in zip(names, jaxpr.invars[-len(names) :], strict=True) if id(v) in used)
