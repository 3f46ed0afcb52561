"""Recompute numbers of an experiment from its stored draws and rows, with NumPy alone.

This shares no code with the stages whose tables it checks, so it detects a table that the draws do not support.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.data.shards import Shards, open_shards
from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.planning.specs import dataset_name, split_name
from bayesmesh.reproduction.claims.results import NotRun, Reading, Results
from bayesmesh.store.layout import DataLayout, ExperimentLayout
from bayesmesh.store.posterior_reader import Posterior
from bayesmesh.store.sealed import read_sealed

__all__ = ["best_film_entropy", "softmax_accuracy", "watch_matrix"]

_BLOCK_BYTES = 16 * 2**20


def softmax_accuracy(results: Results, experiment: str, which: str) -> Reading:
    """Accuracy of softmax regression on the test rows: ``single`` draws, their ``average``, and the ``gain``.

    The class with the largest logit, and with the largest probability averaged over all draws.
    """
    layout, shards = _opened(results, experiment)
    if not layout.posterior_hashes.is_file():
        raise NotRun(f"{layout.posterior.relative_to(results.folder)} is not there")
    return Reading(_accuracies(layout, shards.path, hash_file(layout.posterior_hashes))[which], _file(layout))


@functools.lru_cache(maxsize=4)
def _accuracies(layout: ExperimentLayout, data: Path, digest: str) -> dict[str, float]:
    """Return all three numbers, once for each posterior: several claims ask for them."""
    del digest
    shards = open_shards(data)
    posterior = Results(layout.results).store(_file(layout), ["posterior/weights", "posterior/biases"])
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
    single = hits / (count * len(labels))
    average = float((summed.argmax(1) == labels).mean())
    return {"single": single, "average": average, "gain": average - single}


def watch_matrix(results: Results, experiment: str, which: str) -> Reading:
    """Facts of the whole watch matrix, held-out films included: ``shape``, ``ratings``, ``most``, ``least`` films of a user.

    All values are read and must match their fingerprint.
    """
    shards = _opened(results, experiment)[1]
    shards.verify()
    films = _films_of_users(shards)
    shape = f"{shards.num_rows}, {shards.fields['watched'].shape[0]}"
    found: dict[str, float | str] = {
        "shape": shape, "ratings": int(films.sum()), "most": int(films.max()), "least": int(films.min())
    }  # fmt: skip
    return Reading(found[which], shards.path.relative_to(results.folder).as_posix())


def best_film_entropy(results: Results, experiment: str, which: str) -> Reading:
    """Entropy, in nats, of a user's best unwatched film over all draws: ``most`` and ``least`` active user.

    A draw's best film is the one with the largest logit among those that the user has not watched in the training part.
    """
    layout, shards = _opened(results, experiment)
    names = ("user_embeddings", "user_biases", "film_embeddings", "film_biases")
    posterior = results.store(_file(layout), [f"posterior/{name}" for name in names])
    films = _films_of_users(shards)
    users = {"most": int(films.argmax()), "least": int(films.argmin())}
    place = list(users.values())
    watched = np.concatenate([shards.read_rows(user, user + 1)["watched"] for user in place]) > 0
    counts = np.zeros(watched.shape, np.int64)
    for mine, my_bias, all_films, biases in _draws(
        posterior, *names, rows={"user_embeddings": place, "user_biases": place}
    ):
        logits = np.where(watched, -np.inf, mine @ all_films.T + my_bias[:, None] + biases)
        counts[[0, 1], logits.argmax(1)] += 1
    return Reading(dict(zip(users, map(_entropy, counts), strict=True))[which], _file(layout))


def _entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _films_of_users(shards: Shards) -> np.ndarray:
    """Return the films of every user, shape (users,), those that were held out included."""
    films = shards.read_rows(0, shards.num_rows)["watched"].sum(axis=1, dtype=np.int64)
    held_out: Any = shards.held_out()
    return films if held_out is None else films + np.diff(held_out.indptr)


def _opened(results: Results, experiment: str) -> tuple[ExperimentLayout, Shards]:
    """Return the files of the experiment and the data of its chains."""
    layout = ExperimentLayout(results.folder, experiment)
    manifests = sorted(layout.chains.glob("group-*.json"))
    if not manifests:
        raise NotRun(f"{layout.experiment} has no chains")
    identity = read_sealed(manifests[0]).get("identity", "")
    data = read_sealed(layout.identity_record(identity))["config"]["data"]
    shards = DataLayout(results.folder, dataset_name(data), split_name(data)).shards
    if not shards.exists():
        raise NotRun(f"{shards.relative_to(results.folder)} is not there")
    return layout, open_shards(shards)


def _draws(
    posterior: Posterior, *names: str, rows: dict[str, list[int]] | None = None
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield draws one by one, optionally of some rows only."""
    for block in posterior.blocks(names, block_bytes=_BLOCK_BYTES):
        for draw in range(len(block[names[0]])):
            yield tuple(block[n][draw][rows[n]] if rows and n in rows else block[n][draw] for n in names)


def _file(layout: ExperimentLayout) -> str:
    return layout.posterior.relative_to(layout.results).as_posix()
