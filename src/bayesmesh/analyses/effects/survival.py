"""The survival of a model of censored times, averaged over rows, beside the estimate of Kaplan and Meier where there is one."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.analyses._draw_blocks import DrawBlocks
from bayesmesh.analyses._outcome import find_outcome
from bayesmesh.analyses.base import BoundModel
from bayesmesh.models.base import Latents, Rows
from bayesmesh.store.posterior.reader import Posterior, in_dtype

FAMILIES = ("weibull", "log_normal", "exponential")

NUM_DRAWS, MOST_ROWS, NUM_TIMES = 200, 2000, 100
"""Draws, and evenly spaced rows, over which the survival at each time is averaged."""


_NOTE = "The mean over rows, each with its own predictors and groups."
_OF_THE_TIMES = " The Kaplan-Meier estimate knows the times alone."


def kaplan_meier(times: Float[np.ndarray, " row"], is_event: np.ndarray, at: np.ndarray) -> Float[np.ndarray, " time"]:
    """Return the estimated probability to survive beyond each time; rows without an event are censored on the right.

    >>> times, is_event = np.array([1.0, 2.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False, True])
    >>> kaplan_meier(times, is_event, np.array([0.5, 1.0, 2.5, 4.0])).round(6).tolist()
    [1.0, 0.8, 0.6, 0.0]
    """
    distinct, place = np.unique(times, return_inverse=True)
    events, leaving = np.bincount(place, is_event), np.bincount(place)
    at_risk = len(times) - np.cumsum(leaving) + leaving
    survival = np.concatenate([[1.0], np.cumprod(1 - events / at_risk)])
    return survival[np.searchsorted(distinct, at, side="right")]


def survival_of(bound: BoundModel, posterior: Posterior) -> list[Any]:
    """Return the figure of a model of censored times, as `curves_of` describes figures.

    Rows count by their weights, and survival is that without truncation: times before entry are part of it. The estimate of Kaplan and
    Meier, which knows neither, is in it if times are censored on the right alone.

    Args:
        bound: model and data.
        posterior: the draws.
    """
    model, spec, shards = bound
    options = model.options
    if getattr(options, "family", "") not in FAMILIES or getattr(options, "censored", None) is None:
        return []
    # An end that is the outcome in all rows is left out.
    ends = [[rows.get(end, rows["outcome"]) for end in ("outcome", "above", "up_to")] for rows in shards.blocks()]
    times, above, up_to = (np.concatenate(each).astype(np.float64) for each in zip(*ends, strict=True))
    is_event = above == up_to
    at = np.linspace(0, max(times.max(), up_to[np.isfinite(up_to)].max(initial=0)), NUM_TIMES + 1)
    chosen = np.unique(np.linspace(0, shards.num_rows - 1, min(MOST_ROWS, shards.num_rows)).astype(np.int64))
    read = shards.read_chosen(chosen)
    rows = {k: jnp.asarray(in_dtype(v, spec.dtype)) for k, v in read.items() if k not in ("lower", "upper")}
    draws = DrawBlocks(
        "effects", model, spec, posterior, math.ceil(posterior.num_chains * posterior.num_draws / NUM_DRAWS)
    )
    entries = spec.entries_of(chosen)

    def of_draw(latents: Latents, rows: Rows) -> Array:
        predictive: Any = model.predict(draws.align(latents, entries), rows)
        weights = rows.get("weights")
        return jax.lax.map(
            lambda time: jnp.average(predictive.survival_function(time), weights=weights), jnp.asarray(at, spec.dtype)
        )

    program = jax.jit(lambda latents, rows: jax.lax.map(lambda draw: of_draw(draw, rows), latents))
    found = np.concatenate([np.asarray(program(latents, rows))[:count] for _, count, latents in draws.chunks()])
    low, high = np.quantile(found, (0.05, 0.95), axis=0)
    name = find_outcome(model, shards).name
    series = [{"label": "model", "mean": found.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()}]
    note = _NOTE
    is_plain = not {"lower", "weights"} & read.keys()
    if is_plain and (is_event | (np.isposinf(up_to) & (above == times))).all():
        estimate = kaplan_meier(times, is_event, at).tolist()
        series.append({"label": "Kaplan-Meier", "mean": estimate, "low": estimate, "high": estimate})
        note += _OF_THE_TIMES
    return [{"column": name, "at": at.tolist(), "y": "survival", "series": series, "note": note}]
