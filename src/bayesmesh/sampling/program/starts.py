"""Start chains where the density is finite, and find out why that is impossible.

A chain whose start is not finite takes its next possible start. Keys depend on chain and attempt, or on attempt and the
chains that start together, so starts do not depend on devices.

If starts are drawn without regard to the model, some lie hopelessly far from its mass: an unstable autoregression begins at
a log density of -1e30. Each chain then takes the first of a few starts that is not in the worse half of all of them. The
better half still covers every mode inside the box; choosing the best of all would favour a narrow mode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt32

from bayesmesh.errors import ConfigError
from bayesmesh.models._latents import align_local
from bayesmesh.sampling.density.log_density import Arrays, Target
from bayesmesh.sampling.density.rows import ReadRows
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.start_points import MIRRORED, MOST_ATTEMPTS, choose_points, place_starts
from bayesmesh.sampling.program.values import Arguments, ChainState, GroupKey

NUM_COMPARED = dict.fromkeys(MIRRORED, 8)
"""Method of starting -> number of starts of each chain that are compared; other methods compare none."""

_log = logging.getLogger("bayesmesh")


NAMED_ROWS, NAMED_CHAINS = 3, 8
"""Most rows and chains that a message names."""

_REMEDY = (
    "correct the model's support, its scales or these data; or start elsewhere: sampling.initial.method (auto,"
    " uniform, prior, zero, mode, laplace, model or file) and a smaller sampling.initial.spread{precision}"
)


class NoFiniteStart(ConfigError):
    """All attempts of some chains failed.

    Attributes:
        chains: their numbers within the group.
    """

    def __init__(self, chains: list[int]) -> None:
        super().__init__(
            f"after {MOST_ATTEMPTS} attempts the log density or its gradient is not finite at the start of"
            f" {len(chains)} chains of the group",
            "correct the model's support, or start elsewhere (sampling.initial)",
        )
        self.chains = chains


def start_chains(
    initialise: Callable[..., tuple[ChainState, jax.Array]],
    arguments: Arguments,
    data: Arrays,
    wait: Callable[[object], object] = jax.block_until_ready,
    method: str = "",
    together: int = 2,
) -> ChainState:
    """Return chains at their first finite starts, or at the first good one among those that the method compares.

    A chain with a finite start keeps it while others are started again.

    Args:
        initialise: the compiled program.
        arguments: numbers of the run.
        data: rows on the devices.
        wait: returns once all arrays of a tree are ready.
        method: `sampling.initial.method`.
        together: number of chains that start together, see `start_points.num_together`.

    Raises:
        NoFiniteStart: a chain has used up its attempts; for many datasets, chains of every dataset have.
    """

    def begin(attempt: np.ndarray) -> tuple[ChainState, np.ndarray]:
        state, lp = initialise(arguments._replace(attempt=attempt), data)
        wait((state, lp))
        return state, np.asarray(lp)

    attempt = arguments.attempt
    if num_compared := NUM_COMPARED.get(method, 0):
        lp = np.stack([begin(np.full_like(attempt, i))[1] for i in range(num_compared)])
        attempt = choose_starts(lp, np.asarray(arguments.first_chain), together)
    for tried in range(1, MOST_ATTEMPTS + 1):
        state, lp = begin(attempt)
        has_failed = ~np.isfinite(lp)
        if not has_failed.any():
            if tried > 1:
                _log.info(
                    "%d of %d chains started again, up to %d times",
                    np.count_nonzero(attempt),
                    has_failed.size,
                    tried - 1,
                )
            return state
        attempt = attempt + has_failed.astype(np.uint32)
    if has_failed.ndim > 1:
        # Many datasets are followed by copies of the first. A dataset without a start is reported later, and does not end the others.
        _, own = np.unique(np.asarray(arguments.first_chain), return_index=True)
        has_failed = has_failed[own]
        if not (lost := has_failed.any(axis=1)).all():
            _log.warning(
                "warning: %d of %d datasets have no finite start after %d attempts: their log density is not finite, and they fail",
                lost.sum(), len(lost), MOST_ATTEMPTS,
            )  # fmt: skip
            return state
    raise NoFiniteStart(np.flatnonzero(has_failed).tolist())


def choose_starts(
    lp: Float[np.ndarray, "attempt *dataset chain"], first_chain: UInt32[np.ndarray, "*dataset"], together: int = 2
) -> UInt32[np.ndarray, "*dataset chain"]:
    """Return each chain's first attempt whose log density is not below the median of all finite ones, else its best attempt.

    Chains that start together take the first attempt that is good for all of them, if there is one. Chains are compared with
    those of the same dataset.

    Args:
        lp: log density of each attempt; NaN or infinite where a start is impossible.
        first_chain: absolute number of the first chain.
        together: number of chains that start together, from a multiple of this number on.

    >>> choose_starts(np.array([[-1e9, -3.0], [-4.0, -2.0], [-np.inf, -5.0]]), np.array(1, np.uint32))
    array([1, 0], dtype=uint32)
    >>> choose_starts(np.array([[-1e9, -3.0], [-4.0, -2.0], [-np.inf, -5.0]]), np.array(0, np.uint32))
    array([1, 1], dtype=uint32)
    """
    if lp.ndim > 2:
        return np.stack([choose_starts(lp[:, dataset], first, together) for dataset, first in enumerate(first_chain)])
    finite = np.where(np.isfinite(lp), lp, -np.inf)
    limit = np.median(finite[np.isfinite(finite)]) if np.isfinite(finite).any() else -np.inf
    is_good = finite >= limit
    groups = (int(first_chain) + np.arange(lp.shape[1])) // together
    for group in np.unique(groups):
        members = groups == group
        of_all = is_good[:, members].all(axis=1, keepdims=True)
        if of_all.any():
            is_good[:, members] = of_all
    return np.where(is_good.any(axis=0), is_good.argmax(axis=0), finite.argmax(axis=0)).astype(np.uint32)


def training_row(row: int) -> str:
    """Return the name in messages of a row that is counted from 0.

    >>> training_row(0)
    'training row 1'
    """
    return f"training row {row + 1}"


def explain_start(
    program: Program,
    key: GroupKey,
    chains: list[int],
    read_rows: ReadRows,
    name_row: Callable[[int], str] = training_row,
) -> ConfigError:
    """Return an error that names the chains, and the latent or the rows at fault in the last attempt of the first one.

    Args:
        program: program of the group.
        key: randomness of the group.
        chains: from `NoFiniteStart`.
        read_rows: reads the rows of a range; each of several processes searches its own rows.
        name_row: returns the name of a row from its number in the order of `read_rows`, counted from 0.
    """
    named = ", ".join(str(key.first_chain + chain) for chain in chains[:NAMED_CHAINS])
    more = f" and {len(chains) - NAMED_CHAINS} more" if len(chains) > NAMED_CHAINS else ""
    fault = next(_faults(program, _last_start(program, key, chains[0]), read_rows, name_row))
    precision = ", or use compute.dtype: float64" if program.target.dtype != np.float64 else ""
    return ConfigError(
        f"no start with a finite log density and gradient in {MOST_ATTEMPTS} attempts, for chain"
        f"{'s' if len(chains) > 1 else ''} {named}{more}; in the last attempt of chain"
        f" {key.first_chain + chains[0]}, {fault}",
        _REMEDY.format(precision=precision),
    )


def _last_start(program: Program, key: GroupKey, chain: int) -> dict[str, jax.Array]:
    """Return the unconstrained latents of the last start that a chain tried, each float64."""
    initial, number = program.sampling.initial, key.first_chain + chain
    first = number - number % program.num_together
    last = jax.random.fold_in(jax.random.key(key.seed), np.uint32(first))
    key_start = jax.random.fold_in(last, np.uint32(2**32 - MOST_ATTEMPTS))
    attempt = jnp.full(1, MOST_ATTEMPTS - 1, jnp.uint32)
    where = initial.spread, choose_points(program.points, number, 1), jnp.full(1, number, jnp.uint32)
    starts = place_starts(initial.method, program.target, key_start[None], attempt, *where)
    return program.target.position.unpack(jax.tree.map(lambda x: x[0], starts), jnp.dtype("float64"))


def _faults(
    program: Program, z: Mapping[str, jax.Array], read_rows: ReadRows, name_row: Callable[[int], str]
) -> Iterator[str]:
    """Yield what is not finite, in the order in which the density is computed; yields at least one sentence."""
    target = program.target
    latents = dict(target.bijector.forward(z))
    yield from _not_finite("the latent {}{}", z, z)
    yield from _not_finite("the latent {}{}", latents, latents)
    if hasattr(target.prior, "log_prob_parts"):
        yield from _not_finite("the log prior of the latent {}{}", dict(target.prior.log_prob_parts(latents)), latents)

    def log_prior(z: Any) -> jax.Array:
        return target.prior.log_prob(target.bijector.forward(z)) + target.bijector.forward_log_det_jacobian(z)

    value, gradient = jax.value_and_grad(log_prior)(dict(z))
    if not np.isfinite(value):
        yield f"the log prior is {value}"
    yield from _not_finite("the gradient of the log prior by the latent {}{}", gradient, latents)
    in_dtype = {k: v.astype(target.dtype) for k, v in latents.items()}
    start, end = program.rows_here
    for first in range(start, end, target.layout.tile_rows):
        rows = read_rows(first, min(end, first + target.layout.tile_rows))
        yield from _likelihood_faults(target, in_dtype, first, rows, name_row)
    if program.sampling.initial.method in ("mode", "laplace"):
        yield "the start is finite and the climb from it is not: lower sampling.initial.learning_rate"
    yield "no single term is at fault: their sum over the rows overflows, or rows of another process are at fault"


def _not_finite(text: str, values: Mapping[str, jax.Array], latents: Mapping[str, jax.Array]) -> Iterator[str]:
    """Yield a sentence for each latent with a non-finite value here, with the first such number."""
    for name, value in values.items():
        odd = np.ravel(value)[~np.isfinite(np.ravel(value))]
        if odd.size:
            at = "" if values is latents else f" at {_abridged(latents[name])}"
            yield f"{text.format(f"'{name}'", at)} is {odd[0]}"


def _likelihood_faults(
    target: Target,
    latents: Mapping[str, jax.Array],
    first: int,
    rows: Mapping[str, np.ndarray],
    name_row: Callable[[int], str],
) -> Iterator[str]:
    """Yield what is not finite in the log likelihood of a block of rows and in its gradient."""
    num_rows, shapes = len(next(iter(rows.values()))), target.data_shapes()
    entries = target.spec.entries_of(first + np.arange(num_rows))
    aligned = align_local(target.model, latents, entries)
    on_device = {k: jnp.asarray(v, shapes[k].dtype) for k, v in rows.items()}
    values = np.asarray(target.model.log_likelihood(aligned, on_device))
    if (odd := np.flatnonzero(~np.isfinite(values))).size:
        said = (
            f"{values[i]} in {name_row(first + i)} ({', '.join(f'{k} = {_abridged(v[i])}' for k, v in rows.items())})"
            for i in odd[:NAMED_ROWS]
        )
        yield f"the log likelihood is {'; '.join(said)}"
    is_row = jnp.ones(num_rows, bool)
    _, gradient = target.model.log_likelihood_and_gradient({**latents, **aligned}, on_device, is_row)
    where = f"the gradient of the log likelihood of {num_rows} rows, the first of them {name_row(first)}, by the latent {{}}{{}}"
    yield from _not_finite(where, gradient, latents)


def _abridged(value: Any) -> str:
    """Return the first numbers of an array on one line."""
    flat = np.ravel(value)
    text = ", ".join(f"{x:.6g}" for x in flat[:4].tolist())
    return text if flat.size == 1 else f"[{text}{', ...' if flat.size > 4 else ''}]"
