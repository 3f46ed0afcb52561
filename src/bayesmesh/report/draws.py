"""Read draws of single coordinates from the posterior, and reduce them for plots to block extremes and ranks."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import zarr

from bayesmesh.report.diagnostics_tables import Coordinate, Coordinates
from bayesmesh.store.arrays import dimension_names, read_part
from bayesmesh.store.hashes import check_metadata
from bayesmesh.store.layout import DECLARED, DESCRIBED, TRUTH
from bayesmesh.store.posterior.attributes import read_attribute
from bayesmesh.store.posterior.description import ModelDescription
from bayesmesh.store.posterior.reader import Posterior

NUM_RANK_POINTS = 64


class DrawReader(Posterior):
    """Read coordinates and sampler statistics of ``posterior.zarr``; absent ones are None or empty.

    Args:
        path: folder of the posterior.

    Raises:
        StoreError: the metadata are missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        check_metadata(path)
        super().__init__(path)

    @functools.cached_property
    def attributes(self) -> dict[str, object]:
        """Attributes of the root; JSON objects in strings are decoded."""
        return {name: read_attribute(value) for name, value in self._root.attrs.asdict().items()}

    @functools.cached_property
    def description(self) -> ModelDescription:
        """The model's description of itself; empty in a posterior that an earlier version wrote."""
        return ModelDescription.model_validate(self.attributes.get(DESCRIBED, {}))

    def coordinate(self, item: Coordinate) -> np.ndarray | None:
        """Return the draws of an identified summary or of a latent, float64, shape (chain, draw); None if absent.

        Raises:
            StoreError: a chunk of the array is missing or damaged.
        """
        return self._read("summaries" if item.is_summary else "posterior", item.variable, item.index)

    def axes(self, group: str, name: str) -> list[str]:
        """Return the names of the axes of an array after chain and draw; empty if the array is absent."""
        found = self.find(f"{group}/{name}")
        return [] if found is None else [*dimension_names(found)[2:]]

    def truths(self, items: Coordinates) -> np.ndarray:
        """Return the true values, (coordinate,), of identified summaries from which data were simulated; NaN if unknown."""
        found = np.full(len(items), math.nan)
        for (is_summary, name), places in items.arrays().items():
            array = self.find(f"{TRUTH}/{name}") if is_summary else None
            if array is None:
                continue
            values = read_part(array)
            for n in places.tolist():
                item = items[n]
                if values.ndim == len(item.index):
                    found[n] = values[item.index] * item.scale
        return found

    def statistic(self, name: str, group: str = "sample_stats") -> np.ndarray | None:
        """Return a sampler statistic of every draw, float64, shape (chain, draw); None if absent."""
        return self._read(group, name, ())

    def declared_statistics(self) -> list[tuple[str, str, str]]:
        """Return name, unit and description of each statistic that the kernel declares.

        Posteriors of earlier versions have none.
        """
        group = self._root.get("sample_stats")
        names = read_attribute(group.attrs.get(DECLARED, [])) if isinstance(group, zarr.Group) else []
        found = [(str(name), self.find(f"sample_stats/{name}")) for name in cast(list[object], names)]
        return [
            (name, str(array.attrs.get("units", "")), str(array.attrs.get("description", "")))
            for name, array in found
            if array is not None
        ]

    def _read(self, group: str, name: str, index: tuple[int, ...]) -> np.ndarray | None:
        array = self.find(f"{group}/{name}")
        if array is None or array.ndim != 2 + len(index):
            return None
        if any(position >= size for position, size in zip(index, array.shape[2:], strict=True)):
            return None
        part = (slice(position, position + 1) for position in index)
        draws = read_part(array, slice(None), slice(None), *part)
        return draws.reshape(array.shape[:2]).astype(np.float64)


def thin_by_extremes(values: np.ndarray, num_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Reduce a trace to the smallest and the largest value of each of `num_blocks` blocks, so no excursion is lost.

    Args:
        values: draws of one chain, shape (draw,); non-finite values are left out.
        num_blocks: number of blocks; a trace of at most twice as many finite draws is not reduced.

    Returns:
        Positions and values in the order of the draws, at most two per block.

    >>> thin_by_extremes(np.array([0.0, 5.0, 1.0, 2.0, -3.0, 2.0]), 2)
    (array([0, 1, 3, 4]), array([ 0.,  5.,  2., -3.]))
    """
    kept = np.flatnonzero(np.isfinite(values))
    if kept.size <= 2 * num_blocks:
        return kept, values[kept]
    chosen: list[int] = []
    for block in np.array_split(kept, num_blocks):
        chosen.extend(sorted({int(block[values[block].argmin()]), int(block[values[block].argmax()])}))
    positions = np.array(chosen)
    return positions, values[positions]


class RankDifference(NamedTuple):
    """Empirical distribution function of each chain's ranks among all draws, minus that of all chains.

    Attributes:
        at: fractional ranks, shape (point,).
        difference: difference at these ranks, shape (chain, point).
        band: half-width of the band that contains all chains with 95% probability if they sample the same distribution.
    """

    at: np.ndarray
    difference: np.ndarray
    band: float


def rank_difference(draws: np.ndarray) -> RankDifference | None:
    """Return the rank ECDF difference plot of a coordinate.

    The band is Kolmogorov's for one chain against the pool of all chains, of which it is a part, with a Bonferroni
    correction over chains. The number of draws is replaced by the effective sample size of the ranks, centred within
    each chain. This accounts for autocorrelation within chains but not for disagreement between them, which the band
    should reveal.

    Args:
        draws: draws of the coordinate, shape (chain, draw).

    Returns:
        The plot; None for fewer than two chains, fewer than four draws per chain, or a non-finite draw.

    Reference:
        Säilynoja, Bürkner, Vehtari 2022, doi:10.1007/s11222-022-10090-6, for the difference plot of several samples.

    >>> rank_difference(np.array([[1.0, 2.0, 1.5, 1.2], [3.0, 4.0, 3.5, 3.9]])).difference.max().round(2)
    np.float64(0.5)
    """
    num_chains, num_draws = draws.shape
    if num_chains < 2 or num_draws < 4 or not np.isfinite(draws).all():
        return None
    from bayesmesh.diagnostics.autocovariance import effective_sample_size  # imports scipy.fft: a quarter of start-up

    pooled = np.sort(draws, axis=None)
    # Ties get their average rank: a rejected proposal repeats a value.
    ranks = (np.searchsorted(pooled, draws, "left") + np.searchsorted(pooled, draws, "right")) / (2 * pooled.size)
    at = np.linspace(0, 1, min(NUM_RANK_POINTS, num_draws) + 1)
    below = np.stack([np.searchsorted(np.sort(chain), at, "right") / num_draws for chain in ranks])
    pool = np.searchsorted(np.sort(ranks, axis=None), at, "right") / pooled.size
    within = float(effective_sample_size((ranks - ranks.mean(axis=1, keepdims=True))[None])[0])
    effective = (pooled.size if math.isnan(within) else min(within, pooled.size)) / num_chains
    quantile = math.sqrt(-math.log(0.05 / (2 * num_chains)) / 2)
    return RankDifference(at, below - pool, quantile * math.sqrt((1 - 1 / num_chains) / effective))
