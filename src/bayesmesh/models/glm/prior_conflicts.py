"""Default priors that forbid what the data say: coefficients whose least-squares values are far outside of their priors.

If a prior N(0, s^2) holds, a least-squares value with standard error e is distributed as N(0, s^2 + e^2) before the data are
seen, as for the conflict between prior and data of Evans and Moshonov (2006, doi:10.1214/06-BA129). Columns that are nearly
combinations of others, such as a year and its square, need coefficients that their own standard deviations do not suggest.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from bayesmesh.models.base import DataSpec
from bayesmesh.models.glm.design import Columns
from bayesmesh.models.glm.families import DEFAULT_SCALE, FAMILIES
from bayesmesh.models.glm.formula import KEY
from bayesmesh.models.glm.rows import Plan

_FAR = 4.0
"""Distance from 0, in standard deviations of prior and least squares together: 1 in 16,000 values is beyond it by chance."""

_MOST_NAMED = 4
"""Largest number of coefficients that a warning names."""


def find_conflicts(plan: Plan, options: Any, spec: DataSpec) -> list[str]:
    """Return a warning of coefficients whose default priors forbid what the data say, if there are any."""
    if not plan.columns or "coefficients" in options.priors or "least_squares" not in spec.arrays:
        return []
    width, found = len(plan.sd), []
    unit = float(spec.constants["outcome_scale"]) if FAMILIES[options.family].is_in_unit else 1.0
    estimates, errors = np.asarray(spec.arrays["least_squares"])[:, -width:].reshape(2, width, -1)
    distances = np.abs(estimates) / np.hypot(DEFAULT_SCALE * unit, errors)
    for columns, part in zip(plan.columns, plan.parts.values(), strict=True):
        i, j = np.unravel_index(np.argmax(distances[part]), distances[part].shape)
        if columns.name not in options.priors and distances[part][i, j] > _FAR:
            prior, estimate, error = (
                x / plan.sd[part][i] for x in (DEFAULT_SCALE * unit, estimates[part][i, j], errors[part][i, j])
            )
            numbers = (
                f"has a prior standard deviation of {prior:.3g}, and least squares gives {estimate:.4g} +- {error:.2g}"
            )
            found.append((distances[part][i, j], columns, f"'{columns.labels[i]}' {numbers}", abs(estimate)))
    if not found:
        return []
    found = sorted(found, key=lambda each: -each[0])[:_MOST_NAMED]
    standardise = list(dict.fromkeys(name for _, columns, *_ in found for name in _to_standardise(columns, spec)))
    keys = ", ".join(f'{json.dumps(columns.name)}: "normal(0, {2 * size:.1g})"' for _, columns, _, size in found)
    remedy = f"standardise the columns in the data (standardise: {json.dumps(standardise)}), or " if standardise else ""
    return [
        f"{KEY}: default priors forbid coefficients that the data determine: {'; '.join(text for *_, text, _ in found)}. Their "
        f"standard deviations follow from those of single columns: {remedy}set wider priors in the model (priors: {{{keys}}})"
    ]


def _to_standardise(columns: Columns, spec: DataSpec) -> Iterator[str]:
    """Yield the columns of numbers from which a term is computed by arithmetic alone, unless they are standardised."""
    for factor in columns.term:
        calls = {ast.unparse(node.func) for node in ast.walk(factor.tree) if isinstance(node, ast.Call)}
        for name in factor.names if calls <= {"I"} else ():
            about = spec.variables.get(name)
            if about is not None and about.kind == "number" and (about.mean, about.scale) == (0.0, 1.0):
                yield name
