"""Recompute published numbers from stored inputs and draws, with NumPy alone.

This shares no code with what wrote the tables, so it detects a number that was typed in, or that the draws do not
support. Such a number agrees with the record of its job but not with a second computation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.errors import StoreError
from bayesmesh.store.layout import DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior
from bayesmesh.store.records.checked import read_checked
from bayesmesh.workflow.jobs import dataset_name, split_name
from bayesmesh_reproduction.claims.results import NotRun, Reading, Results, Statistic

AGAIN = "run the benchmark again"

Row = Mapping[str, str]

_BLOCK_BYTES = 16 * 2**20


def recompute(
    results: Results,
    file: str,
    column: str,
    compute: Callable[[Row], float],
    tolerance: float,
    where: Mapping[str, Any],
    choose: Statistic = np.max,
) -> Reading:
    """Recompute all rows of a table, compare a column with them, and return the value of the requested rows.

    *Every* row is recomputed: besides the published point there are points drawn in the run, whose values cannot have
    been typed in.

    Args:
        results: folder to read from.
        file: the table.
        column: column to compare with the computed values.
        compute: returns the value of a row.
        tolerance: allowed difference, relative and absolute.
        where: the requested rows, see `Results.rows`.
        choose: statistic of the requested rows.

    Raises:
        NotRun: the table or the row does not exist.
        StoreError: a row says another number or none, or only the published point is there.
    """
    rows, wanted = results.rows(file), results.rows(file, **where).records()
    for row, said in zip(rows.records(), rows.numbers(column), strict=True):
        try:
            found = compute(row)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise StoreError(f"{file}: a row has no inputs to compute it from: {error!r}", AGAIN) from error
        if not math.isclose(found, said, rel_tol=tolerance, abs_tol=tolerance):
            inputs = ", ".join(f"{k} {v}" for k, v in row.items() if k != column)
            raise StoreError(f"{file}: says {said:.10g}, and NumPy gives {found:.10g} ({inputs})", AGAIN)
    if len(rows.cells) == len(wanted):
        raise StoreError(f"{file}: has no row beside the published ones to compare with", AGAIN)
    return Reading(float(choose(np.array([compute(row) for row in wanted]))), file)


def accuracy_again(results: Results, experiment: str, which: str) -> Reading:
    """Return the accuracy of softmax regression on the test rows: of ``single`` draws, of their ``average``, or the ``gain``."""
    return Reading(_softmax_accuracies(results, experiment)[which], f"{experiment}/posterior.zarr")


@functools.lru_cache(maxsize=4)
def _softmax_accuracies(results: Results, experiment: str) -> dict[str, float]:
    """Return the accuracies of the class with the largest logit, and of that with the largest probability averaged over all draws.

    Cached, because several numbers of a claim ask for it.
    """
    shards = _shards_of(results, experiment)
    posterior = results.store(f"{experiment}/posterior.zarr", ["posterior/weights", "posterior/biases"])
    rows = shards.test_rows()
    if not rows:
        raise StoreError(f"{shards.path}: there are no test rows", "take data that have some")
    features = rows["features"].astype(np.float32) / np.float32(shards.constants["feature_scale"])
    labels = rows["label"].astype(np.int64)
    summed, hits, count = np.zeros((len(labels), posterior.array("posterior", "biases").shape[-1])), 0, 0
    for weights, biases in _draws(posterior, "weights", "biases"):
        logits = features @ weights.astype(np.float32) + biases.astype(np.float32)
        hits += int((logits.argmax(1) == labels).sum())
        share = np.exp(logits - logits.max(1, keepdims=True), dtype=np.float64)
        summed += share / share.sum(1, keepdims=True)
        count += 1
    single, average = hits / (count * len(labels)), float((summed.argmax(1) == labels).mean())
    return {"single": single, "average": average, "gain": average - single}


def watch_matrix(results: Results, experiment: str, which: str) -> Reading:
    """Return a fact about the whole watch matrix, held-out films included: ``shape``, ``ratings``, ``most``, ``least`` films of a user.

    All values are read and must match their fingerprint.
    """
    shards = _shards_of(results, experiment)
    shards.verify()
    films = _films_of_users(shards)
    found: dict[str, float | str] = {
        "shape": f"{shards.num_rows}, {shards.fields['watched'].shape[0]}",
        "ratings": int(films.sum()), "most": int(films.max()), "least": int(films.min()),
    }  # fmt: skip
    return Reading(found[which], shards.path.relative_to(results.folder).as_posix())


def entropy_of_films_again(results: Results, file: str, **_: object) -> Reading:
    """Return the entropy of the best unwatched film over all draws, in nats, for the least active user minus that for the most active one.

    A draw's best film is the one with the largest logit among those that the user has not watched in the training part.
    """
    experiment = file.partition("/")[0]
    file, shards = f"{experiment}/posterior.zarr", _shards_of(results, experiment)
    names = ("user_embeddings", "user_biases", "film_embeddings", "film_biases")
    posterior = results.store(file, [f"posterior/{name}" for name in names])
    films = _films_of_users(shards)
    users = [int(films.argmin()), int(films.argmax())]
    watched = np.concatenate([shards.read_rows(user, user + 1)["watched"] for user in users]) > 0
    counts = np.zeros(watched.shape, np.int64)
    for of_users, user_biases, of_films, film_biases in _draws(posterior, *names):
        logits = np.where(watched, -np.inf, of_users[users] @ of_films.T + user_biases[users, None] + film_biases)
        counts[[0, 1], logits.argmax(1)] += 1
    least, most = map(entropy, counts)
    return Reading(least - most, file)


def entropy(weights: np.ndarray) -> float:
    """Return the entropy in nats of weights, (outcomes,), that are scaled to add to 1.

    >>> round(entropy(np.array([1, 1, 0])), 4)
    0.6931
    """
    return float(-sum(p * math.log(p) for p in weights / weights.sum() if p > 0))


def _films_of_users(shards: Shards) -> np.ndarray:
    """Return the films of every user, shape (users,), those that were held out included."""
    films, held_out = shards.read_rows(0, shards.num_rows)["watched"].sum(axis=1, dtype=np.int64), shards.held_out()
    return films + np.diff(held_out.indptr) if isinstance(held_out, Interactions) else films


def _shards_of(results: Results, experiment: str) -> Shards:
    """Return the data of an experiment's chains."""
    layout = ExperimentLayout(results.folder, experiment)
    manifests = sorted(layout.chains.glob("group-*.json"))
    if not manifests:
        raise NotRun(f"{experiment} has no chains")
    data = read_checked(layout.identity_record(read_checked(manifests[0]).get("identity", "")))["config"]["data"]
    shards = DataLayout(results.folder, dataset_name(data), split_name(data)).shards
    if not shards.exists():
        raise NotRun(f"{shards.relative_to(results.folder)} is not there")
    return Shards(shards)


def _draws(posterior: Posterior, *names: str) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield draws one by one."""
    for block in posterior.blocks(names, block_bytes=_BLOCK_BYTES):
        yield from zip(*(block[name] for name in names), strict=True)
