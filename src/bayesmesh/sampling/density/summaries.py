"""Compute quantities from draws and data after sampling: summaries, pointwise groups.

Their size is bounded: summaries use a few probe rows, and the pointwise groups keep evenly spaced rows within a limit in
bytes. Nothing grows with draws x observations.

On CPUs these programs are optimised lightly, because they run once and rejection samplers take long to compile. Outcomes are
simulated a few draws at a time, because all that are simulated together wait for the last to be accepted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.density.log_density import device_dtype, row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.store.layout import DETERMINISTICS, FIXED
from bayesmesh.store.posterior.reader import Chunks, Posterior, draws_of_block

_SIMULATED = "posterior_predictive"
"""The only group whose function is random."""

_SIMULATED_TOGETHER = 2**12
"""Most outcomes that are simulated together on a CPU; those of one draw are never split."""

_COMPUTED_TOGETHER = 2**22
"""Most numbers, of results and of the rows that they are computed from, of the draws whose deterministics are computed together."""

Derived = dict[str, dict[str, np.ndarray]]
"""Group -> name -> array; arrays computed from draws are (chain, draw, ...)."""


def spread_evenly(total: int, wanted: int) -> Int[np.ndarray, " chosen"]:
    """Return at most `wanted` of the numbers 0 to total - 1, evenly spaced.

    >>> spread_evenly(10, 4).tolist()
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, total - 1, min(total, wanted)).round().astype(np.int64))


_NUM_PRIOR_DRAWS = 8
"""Prior draws at which a summary must keep its value to count as fixed."""

_ROUNDING = 32.0
"""Steps of the experiment's dtype by which rounding may move a value that is constant by construction, such as the diagonal of
a correlation matrix that is computed from its Cholesky factor."""

_Function = Callable[[Latents, Rows, jax.Array], Latents]
"""Function of latents aligned with some rows, these rows, and a key."""


class Extent(NamedTuple):
    """Size of a posterior, and limits on derived quantities.

    Attributes:
        num_chains, num_draws: chains of the posterior, and draws per chain.
        probe_rows: number of rows at which summaries are computed.
        pointwise_bytes: limit on each pointwise group.
    """

    num_chains: int
    num_draws: int
    probe_rows: int
    pointwise_bytes: float


def derive(
    model: Model,
    spec: DataSpec,
    shards: Shards,
    posterior: Posterior,
    probe_rows: int,
    pointwise_bytes: float,
) -> Derived:
    """Return the groups ``summaries``, ``log_likelihood``, ``posterior_predictive``, ``observed_data``, and `find_fixed` as ``fixed``.

    Args:
        model: the model.
        spec: its data.
        shards: the data itself; only probe rows are read.
        posterior: the draws.
        probe_rows: number of rows at which summaries are computed.
        pointwise_bytes: limit on each pointwise group.
    """
    out: Derived = {}
    extent = Extent(posterior.num_chains, posterior.num_draws, probe_rows, pointwise_bytes)
    for numbers, functions in _functions(model, spec, shards, extent):
        rows, entries = shards.read_chosen(numbers), spec.entries_of(numbers)
        given = in_dtype(rows, spec)
        for group, function in functions.items():
            out[group] = map_draws(posterior, model, given, entries, compiled_for_blocks(group, function))
        if "summaries" in functions:
            out[FIXED] = find_fixed(out["summaries"], model, spec, model.summaries, given, entries)
        if _SIMULATED in functions:
            observed = np.asarray(model.outcome({k: jnp.asarray(v) for k, v in rows.items()}))
            out["observed_data"] = {"y": observed.astype(_outcome_type(observed.dtype)), "row": numbers}
    return out


def derive_prior(model: Model, spec: DataSpec, shards: Shards, draws: Chunks, numbers: np.ndarray) -> Derived:
    """Return the groups ``prior`` and ``prior_predictive``, as of one chain.

    Args:
        model, spec, shards: as in `derive`.
        draws: of the prior.
        numbers: of the rows whose outcomes are simulated.
    """
    rows, entries = jax.device_put(in_dtype(shards.read_chosen(numbers), spec)), spec.entries_of(numbers)
    simulate, latents, outcomes = compiled_for_blocks(_SIMULATED, _simulator(model, shards)), [], []
    for first, count, chunk in draws:
        aligned = {k: np.take(chunk[k], entries, axis=1 + axis) for k, axis in model.local_latents.items()}
        outcomes.append(np.asarray(simulate({**chunk, **aligned}, np.uint32(first), rows)["y"])[:count])
        latents.append({k: v[:count] for k, v in chunk.items()})
    prior = {k: np.concatenate([part[k] for part in latents])[None] for k in latents[0]}
    return {"prior": prior, "prior_predictive": {"y": np.concatenate(outcomes)[None]}}


def find_fixed(
    summaries: Mapping[str, np.ndarray],
    model: Model,
    spec: DataSpec,
    function: Callable[[Latents, Rows], Latents],
    rows: Mapping[str, np.ndarray],
    entries: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return summary -> flat positions of its entries that no latent changes, such as the predictor of ``y ~ 0``.

    Such an entry has one value in all draws, and the same at draws of the prior. The latter are independent of the chains, so an entry
    that is constant because chains are stuck is not among them.

    Args:
        summaries: name -> draws (chain, draw, ...).
        model, spec: the model and its data.
        function: from one draw and rows to the summaries without their first two axes.
        rows: data at which the summaries were computed.
        entries: entries of local latents that belong to these rows.
    """
    step = _ROUNDING * np.finfo(np.dtype(spec.dtype)).eps
    ends = {k: [np.asarray(f(v, axis=(0, 1)), np.float64) for f in (np.min, np.max)] for k, v in summaries.items()}
    with np.errstate(invalid="ignore"):
        constant = {k: high - low <= step * np.abs(high) for k, (low, high) in ends.items()}
    chosen = [k for k, each in constant.items() if each.any()]
    if not chosen:
        return {}
    prior = model.prior(spec)
    draws = [dict(prior.sample(seed=jax.random.key(number))) for number in range(_NUM_PRIOR_DRAWS)]
    stacked = {k: jnp.stack([draw[k] for draw in draws]) for k in draws[0]}
    aligned = {k: jnp.take(stacked[k], entries, axis=1 + axis) for k, axis in model.local_latents.items()}
    found = jax.jit(jax.vmap(function, (0, None)))({**stacked, **aligned}, jax.device_put(dict(rows)))
    fixed = {}
    for k in chosen:
        with np.errstate(invalid="ignore"):
            is_same = np.abs(np.asarray(found[k], np.float64) - ends[k][0]) <= step * np.abs(ends[k][0])
        if (positions := np.flatnonzero(constant[k] & is_same.all(axis=0))).size:
            fixed[k] = positions
    return fixed


def summaries_at_truth(
    model: Model, spec: DataSpec, shards: Shards, posterior: Posterior, probe_rows: int
) -> dict[str, np.ndarray]:
    """Return the summaries at the latents that generated simulated data; empty if data are real, or from another model.

    Args:
        model, spec, shards, posterior: as in `derive`.
        probe_rows: number of rows at which summaries are computed.
    """
    truth = shards.truth()
    shapes = {name: posterior.array("posterior", name).shape[2:] for name in posterior.latents}
    if {name: truth[name].shape for name in shapes if name in truth} != shapes:
        return {}
    numbers = spread_evenly(spec.num_rows, probe_rows)
    latents = {name: truth[name].astype(posterior.array("posterior", name).dtype) for name in shapes}
    entries = spec.entries_of(numbers)
    aligned = {k: np.take(latents[k], entries, axis=axis) for k, axis in model.local_latents.items()}
    rows = jax.device_put(in_dtype(shards.read_chosen(numbers), spec))
    return {k: np.asarray(v) for k, v in jax.device_get(jax.jit(model.summaries)({**latents, **aligned}, rows)).items()}


def lower_derived(
    model: Model, spec: DataSpec, shards: Shards, latents: Mapping[str, jax.ShapeDtypeStruct], extent: Extent
) -> Iterator[jax.stages.Lowered]:
    """Yield the programs that `derive` runs on a posterior of this extent.

    Args:
        model: the model.
        spec: its data.
        shards: the data itself; only probe rows are read.
        latents: latent -> shape and dtype of one draw.
        extent: extent of the posterior.
    """
    of_draw = [(s.shape, np.dtype(s.dtype)) for s in latents.values()]
    num_draws = extent.num_chains * draws_of_block(of_draw, extent.num_chains, extent.num_draws)
    first = jax.ShapeDtypeStruct((), np.uint32)
    for numbers, functions in _functions(model, spec, shards, extent):
        rows = row_shapes(spec, len(numbers))
        aligned = resize_local(latents, model.local_latents, len(numbers))
        block = {k: s.update(shape=(num_draws, *s.shape)) for k, s in aligned.items()}
        for group, function in functions.items():
            yield compiled_for_blocks(group, function).lower(block, first, rows)


def _functions(
    model: Model, spec: DataSpec, shards: Shards, extent: Extent
) -> Iterator[tuple[np.ndarray, dict[str, _Function]]]:
    """Yield row numbers, and group -> function that computes its quantities at these rows from every draw."""
    yield spread_evenly(spec.num_rows, extent.probe_rows), {"summaries": lambda z, rows, _: model.summaries(z, rows)}

    def log_likelihood(latents: Latents, data: Rows, _: jax.Array) -> Latents:
        return {"y": model.log_likelihood(latents, data)}

    numbers = _pointwise_rows(model, spec, shards, extent)
    if numbers is not None:
        yield numbers, {"log_likelihood": log_likelihood, _SIMULATED: _simulator(model, shards)}


def _simulator(model: Model, shards: Shards) -> _Function:
    """Return the function that simulates outcomes."""
    of_outcome = _outcome_type(_stored_outcome(model, shards).dtype)
    return lambda latents, rows, key: {"y": model.predict(latents, rows).sample(seed=key).astype(of_outcome)}


def _outcome_type(dtype: np.dtype) -> np.dtype:
    """Convert counts and labels to int32, whatever integer type the model uses."""
    return np.dtype(np.int32) if np.issubdtype(dtype, np.integer) else dtype


def in_dtype(rows: Mapping[str, np.ndarray], spec: DataSpec) -> dict[str, np.ndarray]:
    """Return rows as models receive them: floating-point fields in the experiment's dtype, others as stored."""
    return {k: np.asarray(v, device_dtype(v.dtype.name, np.dtype(spec.dtype))) for k, v in rows.items()}


def _pointwise_rows(model: Model, spec: DataSpec, shards: Shards, extent: Extent) -> np.ndarray | None:
    """Return the rows of the pointwise groups, fewer for wide outcomes and many draws; None if none fits, or nothing is predicted."""
    if not extent.pointwise_bytes or not model.has_predictions:
        return None
    outcome = _stored_outcome(model, shards)
    of_outcome = _outcome_type(outcome.dtype).itemsize * math.prod(outcome.shape[1:])
    itemsize = max(of_outcome, np.dtype(spec.dtype).itemsize)
    wanted = int(extent.pointwise_bytes / (itemsize * extent.num_chains * extent.num_draws))
    return spread_evenly(spec.num_rows, wanted) if wanted >= 1 else None


def _stored_outcome(model: Model, shards: Shards) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of one row's outcome as stored in the data."""
    outcome: jax.ShapeDtypeStruct = jax.eval_shape(model.outcome, shards.read_rows(0, 1))
    return outcome


def compiled_for_blocks(group: str, function: _Function) -> jax.stages.Wrapped:
    """Return the compiled function from a block of draws, the number of its first draw, and rows to the group's values for each draw."""
    is_on_cpu = jax.default_backend() == "cpu"

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1} if is_on_cpu else None)
    def block_function(block: Latents, first: jax.Array, on_device: Rows) -> Latents:
        def of_draws(start: int | jax.Array, size: int) -> Latents:
            draws = {k: jax.lax.dynamic_slice_in_dim(v, start, size) for k, v in block.items()}
            numbers = first + jnp.asarray(start, jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)
            keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(0)))(numbers)
            return jax.vmap(function, in_axes=(0, None, 0))(draws, on_device, keys)

        num_draws = len(next(iter(block.values())))
        if group != DETERMINISTICS and (group != _SIMULATED or not is_on_cpu):
            return of_draws(0, num_draws)
        of_one = jax.eval_shape(lambda: of_draws(0, 1))
        cells, limit = sum(math.prod(s.shape) for s in of_one.values()), _SIMULATED_TOGETHER
        if group == DETERMINISTICS:
            cells, limit = cells + sum(v.size for v in on_device.values()), _COMPUTED_TOGETHER
        size = min(num_draws, max(1, limit // cells))

        def fill(i: jax.Array, made: Latents) -> Latents:
            # If parts do not fill the block, the last part begins earlier; overlapping draws get the same values.
            start = jnp.minimum(i * size, num_draws - size)
            part = of_draws(start, size)
            return {k: jax.lax.dynamic_update_slice_in_dim(v, part[k], start, 0) for k, v in made.items()}

        empty = {k: jnp.zeros((num_draws, *s.shape[1:]), s.dtype) for k, s in of_one.items()}
        return jax.lax.fori_loop(0, -(-num_draws // size), fill, empty)

    return block_function


def map_draws(
    posterior: Posterior,
    model: Model,
    data: Mapping[str, np.ndarray],
    entries: np.ndarray,
    function: Callable[..., Any],
) -> dict[str, np.ndarray]:
    """Apply a function of (latents, rows, key) to every draw, block by block; return name -> (chain, draw, ...).

    Local latents are aligned with the rows of `data`, which belong to `entries`.
    """
    # `jnp.asarray` would compile a program for each field.
    on_device = jax.device_put(dict(data))
    parts, done = [], 0
    for block in posterior.blocks():
        aligned = {k: np.take(block[k], entries, axis=1 + axis) for k, axis in model.local_latents.items()}
        parts.append(jax.device_get(function({**block, **aligned}, np.uint32(done), on_device)))
        done += len(next(iter(block.values())))
    return _by_chain(parts, posterior)


def _by_chain(parts: Sequence[Mapping[str, np.ndarray]], posterior: Posterior) -> dict[str, np.ndarray]:
    """Return name -> (chain, draw, ...), from what was computed of consecutive blocks of draws."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    shape = posterior.num_draws, posterior.num_chains
    return {k: np.swapaxes(v.reshape(*shape, *v.shape[1:]), 0, 1) for k, v in joined.items()}


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
    found = _by_chain(parts, posterior)
    of_datasets = jax.vmap(model.summaries, (None, 0))
    return {"summaries": found, FIXED: find_fixed(found, model, spec, of_datasets, at_probes, within[0])}


def probe_numbers(counts: tuple[int, ...], probe_rows: int) -> np.ndarray:
    """Return the probe rows of each dataset, counted within it and evenly spaced, (dataset, probe).

    >>> probe_numbers((2, 5), 3).tolist()
    [[0, 0, 1], [0, 2, 4]]
    """
    num_probes = min(probe_rows, max(counts))
    return np.stack([np.linspace(0, count - 1, num_probes).round().astype(np.int64) for count in counts])
