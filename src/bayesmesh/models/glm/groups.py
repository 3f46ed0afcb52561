"""Effects that vary over the levels of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.models.base import Latents, Rows
from bayesmesh.models.glm.design import Columns, latent_name
from bayesmesh.models.glm.formula import GroupTerm


class Group(NamedTuple):
    """Effects of one column's levels.

    Attributes:
        number: number of the group in the formula.
        name: name of the column, as part of names of latents.
        has_intercept: whether the first effect is an intercept.
        num_effects: number of effects of each level.
        sizes: root mean square of the column that each effect multiplies.
        num_levels: number of levels of the column.
        is_correlated, is_local: see `Options`.
        is_centred: whether the effects are their own coordinates (True) or multiples of their standard deviations (False);
            None if this depends on their rows, see `coordinates`.
    """

    number: int
    name: str
    has_intercept: bool
    num_effects: int
    sizes: tuple[float, ...]
    num_levels: int
    is_correlated: bool
    is_centred: bool | None
    is_local: bool

    @classmethod
    def make(
        cls,
        number: int,
        term: GroupTerm,
        columns: Sequence[Columns],
        constants: Mapping[str, float | int],
        options: Any,
    ) -> Group:
        """Return the effects of a term of the formula.

        Args:
            number: number of the term.
            term: the term.
            columns: columns that its effects multiply, without the intercept.
            constants: constants of the prepared data.
            options: options of the model.
        """
        has_intercept = () in term.terms
        first = int(constants[f"first_effect_of_group_{number}"])
        own = [float(constants[f"size_of_effect_{first + i}"]) for i in range(sum(len(c.labels) for c in columns))]
        sizes = ([1.0] if has_intercept else []) + own
        return cls(
            number, latent_name(term.group), has_intercept, len(sizes), tuple(sizes), int(constants[f"levels_of_group_{number}"]),
            term.is_correlated and len(sizes) > 1, _is_centred(term.group, options.centred), constants["local_group"] == number,
        )  # fmt: skip

    @property
    def sd(self) -> str:
        """Latent with the standard deviation of each effect."""
        return f"sd_{self.name}"

    @property
    def correlation(self) -> str:
        """Latent with the Cholesky factor of the correlations."""
        return f"correlation_{self.name}"

    @property
    def correlations(self) -> str:
        """Summary with the correlations of pairs of effects."""
        return f"cor_{self.name}"

    @property
    def effects(self) -> str:
        """Latent with the effects, (level, effect), in the unit of the predictor."""
        return f"effects_{self.name}"

    def scale(self, latents: Latents) -> Float[Array, "effect effect"]:
        """Return the Cholesky factor of the covariance of the effects of a level."""
        sd = latents[self.sd]
        return sd[:, None] * latents[self.correlation] if self.is_correlated else jnp.diag(sd)

    def of_rows(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the contribution of the effects to the predictor of each row."""
        effects = latents[self.effects]
        if not self.is_local:
            effects = effects[rows[f"group_{self.number}"]]
        total = effects[:, 0] if self.has_intercept else jnp.zeros_like(effects[:, 0])
        if self.num_effects > int(self.has_intercept):
            total = total + jnp.sum(effects[:, int(self.has_intercept) :] * rows[f"effects_{self.number}"], axis=1)
        return total

    def with_new_levels(self, latents: Latents, number: int, key: PRNGKeyArray) -> Float[Array, "level effect"]:
        """Return the effects followed by those of new levels, drawn given standard deviations and correlations."""
        known = latents[self.effects]
        standard = jax.random.normal(key, (number, self.num_effects), known.dtype)
        return jnp.concatenate([known, standard @ self.scale(latents).T])

    def summaries(self, latents: Latents) -> dict[str, Array]:
        """Return standard deviations, and correlations below the diagonal."""
        found = {self.sd: latents[self.sd]}
        if self.is_correlated:
            factor = latents[self.correlation]
            below = jnp.tril_indices(self.num_effects, -1)
            found[self.correlations] = (factor @ factor.T)[below]
        return found


def _is_centred(group: str, given: bool | tuple[str, ...] | None) -> bool | None:
    return group in given if isinstance(given, tuple) else given
