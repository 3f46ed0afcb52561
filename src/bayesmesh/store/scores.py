"""Pointwise scores of rows, as analyses store them and comparisons read them: ``pointwise.zarr``."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.files import atomic_folder
from bayesmesh.store.arrays import open_group, read_part, write_array
from bayesmesh.store.layout import ROW

POINTWISE = "pointwise.zarr"
"""Name of the output of an analysis that scores every row."""

_OTHERS = ("pareto_k", "effective_parameters", "mcse", "pit", "is_matched", "is_refit", "row", "cluster")

SINGLE_ROWS = "single rows"
"""How rows are left out, unless an analysis says otherwise."""


@dataclasses.dataclass(frozen=True)
class RowScores:
    """Log scores of rows, in the order of the source.

    Attributes:
        elpd: (row,) float64, log predictive density or probability of each row's outcome, in nats.
        digest: of the outcomes, see `digest_outcomes`: equal for the same rows of the same outcome.
        is_discrete: whether outcomes are whole numbers, so that scores are log probabilities and not log densities.
        num_draws: draws of all chains.
        pareto_k, effective_parameters, mcse: (row,) float64 or None: Pareto k; effective number of parameters; Monte Carlo
            standard error of `elpd`.
        pit: (row,) float64 or None: probability of a smaller outcome, predicted from all other rows; uniform if the model
            is right.
        is_matched: (row,) float64 or None: 1 where moment matching improved the score and k.
        is_refit: (row,) float64 or None: 1 where the score is that of draws that were sampled without the row; k is then 0.
        row: (row,) float64 or None: numbers of the rows among the training rows, where not all are scored.
        cluster: (row,) float64 or None: number of the group to which each row belongs, if groups are left out. Rows of one
            group are not independent, so standard errors are over groups.
        scheme: how rows are left out, in words; scores by different schemes are not compared.
        failed: refits whose chains failed their gates.
        sum_mcse: Monte Carlo standard error of the sum, if rows share draws, so that it does not follow from `mcse`; else None.
    """

    elpd: np.ndarray
    digest: str
    is_discrete: bool
    num_draws: int
    pareto_k: np.ndarray | None = None
    effective_parameters: np.ndarray | None = None
    mcse: np.ndarray | None = None
    pit: np.ndarray | None = None
    is_matched: np.ndarray | None = None
    is_refit: np.ndarray | None = None
    row: np.ndarray | None = None
    cluster: np.ndarray | None = None
    scheme: str = SINGLE_ROWS
    failed: tuple[str, ...] = ()
    sum_mcse: float | None = None

    @property
    def monte_carlo_error(self) -> float:
        """Return the Monte Carlo standard error of the sum; 0 if it is not known."""
        if self.sum_mcse is not None:
            return self.sum_mcse
        return 0.0 if self.mcse is None else float(np.sqrt(np.square(self.mcse).sum()))

    @property
    def total(self) -> tuple[float, float]:
        """Return the sum over rows, and its standard error over rows or groups."""
        return float(self.elpd.sum()), sum_error(self.elpd, self.cluster)


def sum_error(values: np.ndarray, clusters: np.ndarray | None = None) -> float:
    """Return the standard error of the sum of independent values, or of independent clusters of values; NaN for fewer than two.

    >>> round(sum_error(np.array([1.0, 3.0])), 6), sum_error(np.array([1.0]))
    (2.0, nan)
    >>> round(sum_error(np.array([1.0, 3.0, 4.0]), np.array([7, 9, 7])), 6)
    2.0
    """
    values = sum_clusters(values, clusters)
    # A sum with an infinite score has no standard error.
    with np.errstate(invalid="ignore"):
        return float(np.sqrt(len(values)) * values.std(ddof=1)) if len(values) > 1 else float("nan")


def say_impossible(scores: RowScores, what: str) -> str:
    """Say which outcomes have no finite score; empty where all have one.

    Args:
        scores: of rows, or of folds that are scored as one.
        what: plural noun for them, such as ``rows``.

    >>> say_impossible(RowScores(np.array([-1.0, -np.inf]), "", True, 8), "rows")
    '1 of 2 rows has no finite log score (the first is number 1), so the sum has none either: the model gives the outcome probability zero, or its likelihood is not a number. Check that the model allows this value.'
    """
    wrong = np.flatnonzero(~np.isfinite(scores.elpd))
    if not wrong.size:
        return ""
    first = int(wrong[0]) if scores.row is None else int(scores.row[wrong[0]])
    return (
        f"{wrong.size:,} of {len(scores.elpd):,} {what} {'has' if wrong.size == 1 else 'have'} no finite log score (the first is number "
        f"{first}), so the sum has none either: the model gives the outcome probability zero, or its likelihood is not "
        "a number. Check that the model allows this value."
    )


def sum_clusters(values: np.ndarray, clusters: np.ndarray | None) -> np.ndarray:
    """Return the sums over the rows of each cluster, (cluster, ...), or the rows if there are no clusters.

    >>> sum_clusters(np.array([1.0, 3.0, 4.0]), np.array([7, 9, 7])).tolist()
    [5.0, 3.0]
    """
    if clusters is None:
        return values
    found, cluster = np.unique(clusters, return_inverse=True)
    sums = np.zeros((len(found), *values.shape[1:]))
    np.add.at(sums, cluster, values)
    return sums


def digest_outcomes(outcomes: np.ndarray) -> str:
    """Return the sha256 of the outcomes of rows, in hexadecimal, independent of their dtype.

    >>> digest_outcomes(np.array([1, 0], np.int8)) == digest_outcomes(np.array([1.0, 0.0]))
    True
    """
    values = np.ascontiguousarray(outcomes, "<f8")
    return hashlib.sha256(str(values.shape).encode() + values.tobytes()).hexdigest()


def write_pointwise(path: Path, left_out: RowScores, held_out: RowScores | None) -> None:
    """Write the scores of training rows, each left out in turn, and of held-out rows if there are any.

    An earlier store is replaced when the new one is complete.
    """
    with atomic_folder(path) as partial:
        root = open_group(partial, "w")
        for name, scores in (("left_out", left_out), ("held_out", held_out)):
            if scores is None:
                continue
            group = root.create_group(name)
            group.attrs.update(digest=scores.digest, is_discrete=scores.is_discrete, num_draws=scores.num_draws)
            if scores.scheme != SINGLE_ROWS or scores.failed:
                group.attrs.update(scheme=scores.scheme, failed=list(scores.failed))
            if scores.sum_mcse is not None and np.isfinite(scores.sum_mcse):
                group.attrs.update(sum_mcse=scores.sum_mcse)
            for array in ("elpd", *_OTHERS):
                values = getattr(scores, array)
                if values is not None:
                    write_array(group, array, np.asarray(values, np.float64), (ROW,))


def read_pointwise(path: Path) -> dict[str, RowScores]:
    """Return the scores of ``left_out`` and, if stored, of ``held_out`` rows.

    Raises:
        StoreError: the store is missing or damaged.
    """
    root = open_group(path)
    # Opened by name: a listing of the groups would warn about a file that Snakemake leaves among them.
    groups = {name: root.get(name) for name in ("left_out", "held_out")}
    found = {name: _read(path, group) for name, group in groups.items() if isinstance(group, zarr.Group)}
    if "left_out" not in found:
        raise StoreError(f"{path}: no group 'left_out'", "run the analysis that writes it again")
    return found


def read_scheme(path: Path) -> str:
    """Return how the rows of stored scores were left out, in words.

    Raises:
        StoreError: the store is missing or damaged.
    """
    group = open_group(path).get("left_out")
    return str(group.attrs.get("scheme", SINGLE_ROWS)) if isinstance(group, zarr.Group) else SINGLE_ROWS


def _read(path: Path, group: zarr.Group) -> RowScores:
    arrays = {name: read_part(array) for name, array in group.arrays()}
    others: dict[str, Any] = {name: arrays.get(name) for name in _OTHERS}
    try:
        attributes = group.attrs
        return RowScores(
            arrays["elpd"],
            str(attributes["digest"]),
            bool(attributes["is_discrete"]),
            int(str(attributes["num_draws"])),
            **others,
            scheme=str(attributes.get("scheme", SINGLE_ROWS)),
            failed=tuple(map(str, _texts(attributes.get("failed")))),
            sum_mcse=float(str(attributes["sum_mcse"])) if "sum_mcse" in attributes else None,
        )
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path}: damaged: {error}", "run the analysis that writes it again") from error


def _texts(value: object) -> list[object]:
    return value if isinstance(value, list) else []
