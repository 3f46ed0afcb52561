"""Witnesses: a claim's number a second time, out of stored arrays, without the code that is under test.

A number that was typed into a table, or that a stage returns without computing it, agrees with its receipt and not with
its witness. Witnesses of a benchmark's table compute *every* row of it: beside the published point there are points that
were drawn anew in the run, and those nobody can have typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bayesmesh.reproduction.claims.claims_file import WITNESSES, MeasureSettings
from bayesmesh.reproduction.claims.posteriors import best_film_entropy, softmax_accuracy, watch_matrix
from bayesmesh.reproduction.claims.reading import Reading
from bayesmesh.reproduction.claims.tables import (
    device_sums,
    equation_counts,
    hidden_markov,
    logistic_gradient,
    same_density,
)

__all__ = ["ask_witness"]

_Witness = Callable[[Path, MeasureSettings], Reading]

_WITNESSES: Mapping[str, _Witness] = {
    "best_film_entropy": best_film_entropy,
    "device_sums": device_sums,
    "equation_counts": equation_counts,
    "hidden_markov": hidden_markov,
    "logistic_gradient": logistic_gradient,
    "same_density": same_density,
    "softmax_accuracy": softmax_accuracy,
    "watch_matrix": watch_matrix,
}

assert set(_WITNESSES) == set(WITNESSES)


def ask_witness(results: Path, measure: MeasureSettings) -> Reading:
    """Return the number that a witness finds.

    Raises:
        NotRun: what it reads is not there.
        StoreError: what it reads is damaged or edited, or a row of a table is not what it computes.
    """
    return _WITNESSES[str(measure.witness)](results, measure)
