"""Choose a metric and an integrator by the size of the model and by where its chains start.

Nothing is timed, so that the choice is the same on every machine: it is part of the identity of a chain.
"""

from __future__ import annotations

_MOST_DENSE = 300
"""Coordinates up to which a window's eigendecomposition takes a few hundredths of a second."""

_MOST_LOW_RANK = 20_000
"""Coordinates up to which the directions and points of `low_rank` take less than 30 MB."""

_FEWEST_SPLIT = 1_000
"""Coordinates from which leapfrog steps are a third as long as split ones, or shorter (record 0011)."""


def choose_metric(
    num_shared: int, num_local: int, *, is_at_mode: bool, has_unit_scale: bool = False
) -> tuple[str, str]:
    """Return the name of a metric, and the reason in words.

    Args:
        num_shared: shared coordinates.
        num_local: local coordinates of all entries.
        is_at_mode: whether the chains start from the normal at a mode.
        has_unit_scale: see `bayesmesh.models.base.Model.has_unit_scale`.

    >>> [choose_metric(*n, is_at_mode=False)[0] for n in [(40, 0), (4_000, 0), (40, 8_000), (40, 80_000)]]
    ['dense', 'low_rank', 'low_rank', 'diagonal']
    """
    size = f"{num_shared:,} shared and {num_local:,} local coordinates"
    if is_at_mode:
        return "curvature", "the chains start from the normal at a mode, whose curvature is measured there"
    if num_shared <= _MOST_DENSE and not num_local:
        return "dense", f"{size}: at most {_MOST_DENSE:,}, few enough for all correlations"
    if has_unit_scale:
        return "diagonal", f"{size}, which the model has made nearly independent"
    if num_shared + num_local <= _MOST_LOW_RANK:
        return "low_rank", f"{size}: too many for all correlations, at most {_MOST_LOW_RANK:,} for some directions"
    return "diagonal", f"{size}: more than the {_MOST_LOW_RANK:,} for which directions are learnt"


def choose_integrator(num_coordinates: int, *, has_unit_scale: bool) -> tuple[str, str]:
    """Return the name of an integrator, and the reason in words.

    Args:
        num_coordinates: shared coordinates and local ones of all entries.
        has_unit_scale: see `bayesmesh.models.base.Model.has_unit_scale`.

    >>> [choose_integrator(n, has_unit_scale=True)[0] for n in (40, 8_000)]
    ['leapfrog', 'split']
    """
    if not has_unit_scale:
        return "leapfrog", "the posterior may be far from normal"
    if num_coordinates < _FEWEST_SPLIT:
        return "leapfrog", f"{num_coordinates:,} coordinates, for which its steps need not be short"
    return "split", f"{num_coordinates:,} coordinates, which the model has made nearly normal"
