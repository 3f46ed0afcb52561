"""Compute summaries of many datasets from draws, each at its own probe rows."""

from __future__ import annotations

import jax
import numpy as np

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.density.summaries import Derived, find_fixed, in_dtype
from bayesmesh.store.layout import FIXED
from bayesmesh.store.posterior.reader import Posterior


def derive_datasets(model: Model, spec: DataSpec, shards: Shards, posterior: Posterior, probe_rows: int) -> Derived:
    """Return the group ``summaries``, arrays (chain, draw, dataset, ...), and `find_fixed` as ``fixed``.

    Args:
        model: the model.
        spec: its data, with the number of rows of each dataset.
        shards: the data itself.
        posterior: the draws, (chain, draw, dataset, ...).
        probe_rows: rows of a dataset at which summaries are computed; a shorter one repeats some.
    """
    within = probe_numbers(spec.dataset_counts, probe_rows)
    firsts = np.cumsum([0, *spec.dataset_counts])[:-1]
    rows = in_dtype(shards.read_rows(0, shards.num_rows), spec)
    at_probes = jax.device_put({name: v[firsts[:, None] + within] for name, v in rows.items()})

    @jax.jit
    def of_block(block: Latents, rows: Rows) -> Latents:
        return jax.vmap(jax.vmap(model.summaries), in_axes=(0, None))(block, rows)

    parts = []
    for block in posterior.blocks():
        # Entries of local latents are rows, and datasets with such latents have equal length.
        aligned = {k: np.take(block[k], within[0], axis=2 + axis) for k, axis in model.local_latents.items()}
        parts.append(jax.device_get(of_block({**block, **aligned}, at_probes)))
    joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    shape = posterior.num_draws, posterior.num_chains
    found = {k: np.swapaxes(v.reshape(*shape, *v.shape[1:]), 0, 1) for k, v in joined.items()}
    of_datasets = jax.vmap(model.summaries, (None, 0))
    return {"summaries": found, FIXED: find_fixed(found, model, spec, of_datasets, at_probes, within[0])}


def probe_numbers(counts: tuple[int, ...], probe_rows: int) -> np.ndarray:
    """Return the probe rows of each dataset, counted within it and evenly spaced, (dataset, probe).

    >>> probe_numbers((2, 5), 3).tolist()
    [[0, 0, 1], [0, 2, 4]]
    """
    num_probes = min(probe_rows, max(counts))
    return np.stack([np.linspace(0, count - 1, num_probes).round().astype(np.int64) for count in counts])
