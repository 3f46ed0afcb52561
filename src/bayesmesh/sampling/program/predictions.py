"""Predictive distributions of new rows from all draws of a posterior, summarised block of rows by block of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayesmesh.errors import ConfigError
from bayesmesh.models._latents import align_local
from bayesmesh.models._predictive import class_probabilities, expectation
from bayesmesh.models._traced_fields import fields_used
from bayesmesh.models.base import HostRows, Latents, Model, Predictive, Rows
from bayesmesh.sampling.checks.indices import find_rows_beyond, likelihood_of_rows
from bayesmesh.sampling.density.log_density import device_dtype
from bayesmesh.store.posterior.reader import Posterior, StoredDraws

BLOCK_CELLS = 2**23
"""Most draws x rows x classes whose predictions are in memory at a time."""

SEEDED_ROWS = 64
"""Rows of a table whose outcomes share a key; blocks hold whole multiples of them."""

_KEY, _KEY_OF_LEVELS = 0, 1


class Summary(NamedTuple):
    """Predictions of the draws for some rows; all float64.

    Attributes:
        mean: (row, class) probabilities, or (row, 1) expectations of the outcome.
        low, high: likewise, quantiles of the same over draws; None if the distribution does not know its expectation.
        outcome_low, outcome_high: (row,) quantiles of the outcome itself; None for classes.
    """

    mean: Float[np.ndarray, "row class"]
    low: Float[np.ndarray, "row class"] | None
    high: Float[np.ndarray, "row class"] | None
    outcome_low: Float[np.ndarray, " row"] | None
    outcome_high: Float[np.ndarray, " row"] | None


class Predictions:
    """Predictions of a model for rows that it has not seen.

    Args:
        model: the model.
        dtype: dtype of latents and arithmetic.
        posterior: the draws.
        probability: probability of the intervals, such as 0.9.
        added: column -> number of levels that the data did not have; their effects are drawn separately for each draw.
        simulates_classes: whether classes are simulated as well; numbers always are.
        block_cells: see `BLOCK_CELLS`.

    Attributes:
        num_classes: classes whose probabilities are predicted; 0 for a number.
        has_mean: whether the distribution of a number knows its expectation.
    """

    def __init__(
        self, model: Model, dtype: str, posterior: Posterior, probability: float, added: Mapping[str, int],
        *, simulates_classes: bool = False, block_cells: int = BLOCK_CELLS,
    ) -> None:  # fmt: skip
        self._model, self._dtype, self._cells = model, dtype, block_cells
        self._simulates_classes = simulates_classes
        self._added = {column: number for column, number in added.items() if number}
        self._levels = ((1 - probability) / 2, (1 + probability) / 2)
        self._num_draws = posterior.num_chains * posterior.num_draws
        self._draws = StoredDraws(posterior, dtype)
        self._program = jax.jit(self._of_chunk)
        self._find_beyond: Callable[..., int | None] | None = None
        self._is_traced, self.has_mean = False, True
        self.num_classes = 0

    def _with_levels(self, draw: Latents, number: int | jax.Array) -> Latents:
        if not self._added:
            return draw
        # Depends only on the number of the draw, so that a level has the same effects in all blocks of rows.
        key = jax.random.fold_in(jax.random.key(_KEY_OF_LEVELS), number)
        return self._model.with_new_levels(draw, self._added, key)

    def _predict(self, draw: Latents, rows: Rows, entries: jax.Array | np.ndarray) -> Predictive:
        return self._model.predict(align_local(self._model, draw, entries), rows)

    def _of_chunk(
        self, latents: Latents, numbers: jax.Array, start: jax.Array, rows: Rows, entries: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return expectations or probabilities, (draw, row, class), and simulated outcomes, (draw, row, 1), float64."""
        return jax.vmap(lambda draw, number: self._of_draw(draw, number, start, rows, entries))(latents, numbers)

    def _of_draw(
        self,
        draw: Latents,
        number: int | jax.Array,
        start: int | jax.Array,
        rows: Rows,
        entries: jax.Array | np.ndarray,
    ) -> tuple[jax.Array, jax.Array]:
        draw = self._with_levels(draw, number)
        predictive = self._predict(draw, rows, entries)
        probabilities = class_probabilities(predictive)
        if probabilities is not None and not self._simulates_classes:
            return probabilities.astype(jnp.float64), jnp.zeros((len(probabilities), 0))
        key = jax.random.fold_in(jax.random.key(_KEY), number)

        size = min(SEEDED_ROWS, len(entries))

        def of_rows(rows: Rows, entries: jax.Array, place: jax.Array) -> jax.Array:
            # A key for a fixed part of the table, so that outcomes do not depend on the size of a block.
            sample = self._predict(draw, rows, entries).sample(seed=jax.random.fold_in(key, place))
            return jnp.asarray(sample)

        parts = {name: value.reshape(-1, size, *value.shape[1:]) for name, value in rows.items()}
        of_parts = jnp.asarray(entries).reshape(-1, size)
        places = start // SEEDED_ROWS + jnp.arange(len(of_parts), dtype=jnp.uint32)
        simulated = jax.vmap(of_rows)(parts, of_parts, places).reshape(-1)
        drawn = simulated[:, None].astype(jnp.float64)
        if probabilities is not None:
            return probabilities.astype(jnp.float64), drawn
        mean = expectation(predictive)
        return drawn if mean is None else mean[:, None].astype(jnp.float64), drawn

    def fields_used(self, rows: HostRows, entries: np.ndarray) -> frozenset[str]:
        """Return the fields on which predictions depend, from the traced program; the rows serve for their shapes alone."""
        _, _, latents = next(iter(self._draws.chunks()))
        draw = {k: jnp.asarray(v[0]) for k, v in latents.items()}
        return fields_used(
            lambda rows, draw: self._of_draw(draw, 0, 0, rows, entries), _on_device(rows, self._dtype), draw
        )

    def block_rows(self, rows: HostRows, entries: np.ndarray) -> int:
        """Return the number of rows per block, after checking the kind of the prediction for some rows.

        Raises:
            ConfigError: the model does not predict one number or class for each row.
        """
        _, _, latents = next(iter(self._draws.chunks()))
        shapes = {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in latents.items()}
        given = _on_device(rows, self._dtype)
        name = type(self._model).__name__
        try:
            found: list[int] = []

            def classes(draw: Latents) -> jax.Array:
                predictive = self._predict(self._with_levels(draw, 0), given, entries)
                if len(predictive.batch_shape) != 1 or getattr(predictive, "event_shape", ()) != ():
                    raise ConfigError(
                        f"model {name} predicts {type(predictive).__name__} of {predictive.batch_shape}",
                        "predict needs one number or class for each row",
                    )
                probabilities = class_probabilities(predictive)
                found.append(0 if probabilities is None else probabilities.shape[1])
                self.has_mean = probabilities is not None or expectation(predictive) is not None
                return jnp.zeros(())

            jax.eval_shape(classes, shapes)
        except NotImplementedError as error:
            raise ConfigError(f"model {name}: {error}", "use a model that predicts") from error
        self.num_classes = found[0]
        most = self._cells // (self._num_draws * max(1, self.num_classes))
        return max(1, most // SEEDED_ROWS) * SEEDED_ROWS

    def row_beyond(self, rows: HostRows, entries: np.ndarray) -> int | None:
        """Return the first row of a block whose likelihood depends on an entry beyond the end of an array, else None.

        An example is a group that the latents do not have, for which JAX would take the last one. The check uses the first draw, and
        is skipped if levels are added, because their effects are drawn.
        """
        if self._added:
            return None
        _, _, latents = next(iter(self._draws.chunks()))
        given = ({k: jnp.asarray(v[0]) for k, v in latents.items()}, _on_device(rows, self._dtype), entries)

        if not self._is_traced:
            self._find_beyond, self._is_traced = find_rows_beyond(likelihood_of_rows(self._model), *given), True
        return None if self._find_beyond is None else self._find_beyond(*given)

    def draws_of(
        self, rows: HostRows, entries: np.ndarray, start: int, count: int
    ) -> tuple[Float[np.ndarray, "draw row class"], Float[np.ndarray, "draw row"]]:
        """Return expectations or probabilities of all draws for a block of rows, and simulated outcomes, float64.

        The draws are ordered draw by draw and, within a draw, chain by chain. Classes have no simulated outcomes unless these were requested.

        Args:
            rows: a block; every block has the same number of rows, so that one program serves all.
            entries: entry of local latents of each row.
            start: number of the first row, a multiple of `SEEDED_ROWS`; the random numbers of a row follow from its number.
            count: number of rows; those after them are padding.
        """
        given, width = _on_device(rows, self._dtype), max(1, self.num_classes)
        is_simulated = not self.num_classes or self._simulates_classes
        centres = np.empty((self._num_draws, count, width))
        simulated = np.empty((self._num_draws, count if is_simulated else 0))
        for first, num_draws, latents in self._draws.chunks():
            places = np.minimum(np.arange(len(next(iter(latents.values())))), num_draws - 1)
            numbers = (first + places).astype(np.uint32)
            centre, outcome = jax.device_get(self._program(latents, numbers, np.uint32(start), given, entries))
            centres[first : first + num_draws] = centre[:num_draws, :count]
            if is_simulated:
                simulated[first : first + num_draws] = outcome[:num_draws, :count, 0]
        return centres, simulated

    def summarise(
        self, centres: Float[np.ndarray, "draw row class"], simulated: Float[np.ndarray, "draw row"]
    ) -> Summary:
        """Return the summary of what `draws_of` returns, which is overwritten."""
        mean = centres.mean(axis=0)
        # Between infinite draws, quantiles are undefined; the caller reports the row.
        with np.errstate(invalid="ignore"):
            low, high = np.quantile(centres, self._levels, axis=0, overwrite_input=True)
            if self.num_classes:
                return Summary(mean, low, high, None, None)
            outcome_low, outcome_high = np.quantile(simulated, self._levels, axis=0, overwrite_input=True)
        if not self.has_mean:
            low, high = None, None
        return Summary(mean, low, high, outcome_low, outcome_high)


def _on_device(rows: HostRows, dtype: str) -> dict[str, jax.Array]:
    return {k: jnp.asarray(v, device_dtype(np.asarray(v).dtype.name, np.dtype(dtype))) for k, v in rows.items()}
