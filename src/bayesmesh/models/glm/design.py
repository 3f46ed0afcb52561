"""The columns of numbers of the terms of a formula, and the effects that vary over the levels of a column."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.config.data_spec import FieldSpec, Variable
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import HostRows, Latents, Rows
from bayesmesh.models.glm.formula import KEY, Factor, Term

LARGEST = 1e100
"""Largest number in a column, so that sums of squares over all rows stay finite."""

MOST_COLUMNS = 2000
"""Largest number of columns of a design, which is a dense matrix."""

MOST_CATEGORIES = 10
"""Largest number of categories in a product: one of more has too many columns, alone or with the terms that it contains."""


class Source(NamedTuple):
    """Columns of the source, whatever fields were prepared from them.

    Attributes:
        fields: column -> shape and dtype.
        variables: column of a table -> meaning of its numbers.
        labels: vector-valued column -> names of its entries.
        contrasts: category -> ``sum``, or ``treatment`` as for those that are left out.
    """

    fields: Mapping[str, FieldSpec]
    variables: Mapping[str, Variable]
    labels: Mapping[str, tuple[str, ...]]
    contrasts: Mapping[str, str] = {}


def latent_name(text: str) -> str:
    """Return a text as it may stand in the name of a stored array.

    Different texts get different names: a sum and a product of the same columns are two coefficients.

    >>> latent_name("I(x ** 2):log(y / z)"), latent_name("site/plot")
    ('I(x to 2):log(y per z)', 'site per plot')
    """
    for sign, word in (("**", "to"), ("^", "to"), ("*", "times"), ("/", "per"), ("+", "plus")):
        text = re.sub(rf" ?{re.escape(sign)} ?", f" {word} ", text)
    return re.sub(r"[^\w .:()-]", "_", text)


def block_of(priors: Mapping[str, str], term: str) -> str:
    """Return the latent that holds the coefficients of a term: one for each family of priors."""
    text = priors.get(term, priors.get("coefficients", "normal"))
    family = text.partition("(")[0].strip()
    return "coefficients" if family == "normal" else f"coefficients_{latent_name(family)}"


class Levels(NamedTuple):
    """The columns of a category in a block.

    Attributes:
        codes: levels that have a column, which is 1 in their rows; empty for a category that is left out.
        negative: level whose rows have -1 in all of these columns; None for treatment contrasts, and if all have a column.
    """

    codes: tuple[int, ...]
    negative: int | None = None


Coding = tuple[Levels | None, ...]
"""For each factor of a term, its levels; None for numbers."""


class Columns(NamedTuple):
    """The columns of one term.

    Attributes:
        name: of the term, such as ``x:species``.
        term: its factors.
        codings: blocks of columns.
        labels: one for each column, such as ``x:species[elm]``.
        names: the labels without the parts that `name` gives, such as ``elm``; empty for a single column of numbers.
    """

    name: str
    term: Term
    codings: tuple[Coding, ...]
    labels: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def is_single(self) -> bool:
        """Whether it is one column of numbers."""
        return self.names == ("",)

    @property
    def is_of_levels(self) -> bool:
        """Whether all factors are categories."""
        return all(levels is not None for levels in self.codings[0])

    @property
    def is_of_numbers(self) -> bool:
        """Whether no factor is a category."""
        return all(levels is None for levels in self.codings[0])

    def evaluate(
        self, rows: Mapping[str, np.ndarray], num_rows: int, *, without: Literal["", "levels", "numbers"] = ""
    ) -> np.ndarray:
        """Return (row, column) float64: products of the factors, the last one varying fastest; factors of the kind `without` are replaced by 1."""
        return np.concatenate([self._block(coding, rows, num_rows, without) for coding in self.codings], axis=1)

    def _block(self, coding: Coding, rows: Mapping[str, np.ndarray], num_rows: int, without: str) -> np.ndarray:
        made = np.ones((num_rows, 1))
        for factor, levels in zip(self.term, coding, strict=True):
            if levels is None:
                own = factor.evaluate(rows).reshape(num_rows, -1)
            elif not levels.codes:
                continue
            else:
                codes = np.asarray(rows[factor.text])[:, None]
                own = (codes == np.asarray(levels.codes)).astype(np.float64)
                own = own if levels.negative is None else own - (codes == levels.negative)
            if without == ("numbers" if levels is None else "levels"):
                own = np.ones_like(own)
            made = (made[:, :, None] * own[:, None, :]).reshape(num_rows, -1)
        return made


def levels_of(variables: Mapping[str, Variable], factor: Factor) -> tuple[str, ...] | None:
    """Return the levels of a factor that is a category; None for numbers."""
    about = variables.get(factor.text) if factor.is_plain else None
    return about.levels if about is not None and about.kind == "category" else None


def check_numbers(variables: Mapping[str, Variable], factor: Factor) -> None:
    """Reject a transform of a category: it would compute with the codes of the levels.

    Raises:
        ConfigError: names the category.
    """
    for name in () if factor.is_plain else factor.names:
        about = variables.get(name)
        if about is not None and about.kind == "category":
            problem = f"{KEY}: '{factor.text}' computes with '{name}', a category"
            raise ConfigError(problem, f"use the category as it is; or, if its values are numbers, declare them as such:\n    data:\n      types:\n        {name}: number")  # fmt: skip


def make_columns(source: Source, terms: Sequence[Term], *, has_intercept: bool) -> list[Columns]:
    """Return the columns of every term, with contrasts where others make a category redundant.

    The columns have full rank for any data in which all combinations of levels occur: a term is split into the subsets
    of its categories; those that earlier terms span are left out, and pairs that differ by one category are joined again,
    with all its levels (the algorithm of patsy, Smith 2018, doi:10.5281/zenodo.592075).

    Raises:
        ConfigError: a category is transformed, or has only one level.
    """
    spanned = {(frozenset[str](), frozenset[str]())} if has_intercept else set()
    made: list[Columns] = []
    for term in terms:
        levels = {f.text: found for f in term if (found := levels_of(source.variables, f)) is not None}
        _check_width(source, term, levels)
        numbers = frozenset(f.text for f in term) - frozenset(levels)
        codings: list[Coding] = []
        labels: list[str] = []
        names: list[str] = []
        for full in _split(list(levels), numbers, spanned):
            coding = tuple(_chosen(source, f, levels, full) for f in term)
            codings.append(coding)
            labels += _labels(source, term, coding, levels)
            names += _labels(source, term, coding, levels, is_short=True)
        if codings:
            name = latent_name(":".join(f.text for f in term))
            if name in (latent_name(each.name) for each in made):
                raise ConfigError(f"{KEY}: two terms are called '{name}'", "rename a column that they read")
            made.append(Columns(":".join(f.text for f in term), term, tuple(codings), tuple(labels), tuple(names)))
    return made


def _check_width(source: Source, term: Term, levels: Mapping[str, tuple[str, ...]]) -> None:
    """Reject a product of so many levels and numbers that even their names would exhaust the memory."""
    least = math.prod(max(1, len(each) - 1) for each in levels.values())
    least *= math.prod(math.prod(source.fields[f.names[0]].shape) for f in term if f.text not in levels)
    if least > MOST_COLUMNS or len(levels) > MOST_CATEGORIES:
        what = f"{least:,} columns or more" if least > MOST_COLUMNS else f"{len(levels)} categories"
        raise ConfigError(f"{KEY}: '{':'.join(f.text for f in term):.80}' has {what}", f"use at most {MOST_COLUMNS:,} columns, and products of at most {MOST_CATEGORIES} categories; for many levels, use effects of groups: (1 | {term[0].text})")  # fmt: skip


def _split(
    categories: Sequence[str], numbers: frozenset[str], spanned: set[tuple[frozenset[str], frozenset[str]]]
) -> list[dict[str, bool]]:
    """Return blocks of columns, each with its categories and whether all their levels have columns; extends `spanned`."""
    subsets = [c for size in range(len(categories) + 1) for c in itertools.combinations(categories, size)]
    blocks = [dict.fromkeys(c, False) for c in subsets if (numbers, frozenset(c)) not in spanned]
    spanned |= {(numbers, frozenset(c)) for c in subsets}
    while (pair := _joinable(blocks)) is not None:
        short, long, category = pair
        blocks = [{**each, category: True} if each is long else each for each in blocks if each is not short]
    return blocks


def _joinable(blocks: Sequence[dict[str, bool]]) -> tuple[dict[str, bool], dict[str, bool], str] | None:
    """Return two blocks that differ by one category coded without its first level, and the category."""
    for short, long in itertools.permutations(blocks, 2):
        more = [name for name in long if name not in short]
        is_larger = len(long) == len(short) + 1 and len(more) == 1 and not long[more[0]]
        if is_larger and all(long[name] == full for name, full in short.items()):
            return short, long, more[0]
    return None


def _chosen(
    source: Source, factor: Factor, levels: Mapping[str, tuple[str, ...]], full: Mapping[str, bool]
) -> Levels | None:
    """Return the levels of a factor that have a column in a block."""
    if factor.text not in levels:
        return None
    if factor.text not in full:
        return Levels(())
    own = levels[factor.text]
    if not full[factor.text] and len(own) < 2:
        raise ConfigError(f"{KEY}: '{factor.text}' has one level, '{own[0]}'", "leave it out")
    codes = tuple(range(len(own)))
    if full[factor.text]:
        return Levels(codes)
    return Levels(codes[:-1], codes[-1]) if source.contrasts.get(factor.text) == "sum" else Levels(codes[1:])


def _labels(
    source: Source, term: Term, coding: Coding, levels: Mapping[str, tuple[str, ...]], *, is_short: bool = False
) -> list[str]:
    """Return a label for each column of a block; short ones leave out the names of the factors."""
    labels = [""]
    for factor, chosen in zip(term, coding, strict=True):
        entries = _entries(source, factor) if chosen is None else [levels[factor.text][i] for i in chosen.codes]
        own = entries if is_short else [f"{factor.text}[{entry}]" if entry else factor.text for entry in entries]
        labels = [":".join(filter(None, (label, each))) for label in labels for each in own] if own else labels
    return labels


def _entries(source: Source, factor: Factor) -> list[str]:
    """Return a name for each number of a factor in a row: a single empty name, unless a column of the data is a vector."""
    check_numbers(source.variables, factor)
    shapes = {tuple(source.fields[name].shape) for name in factor.names} - {()}
    if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
        raise ConfigError(f"{KEY}: '{factor.text}' mixes columns of the shapes {sorted(shapes)}", "use them one by one")
    if not shapes:
        return [""]
    width = math.prod(next(iter(shapes)))
    known = source.labels.get(factor.text, ()) if factor.is_plain else ()
    return list(known) if len(known) == width else [str(i) for i in range(width)]


def evaluate_columns(columns: Sequence[Columns], rows: Mapping[str, np.ndarray], num_rows: int) -> np.ndarray:
    """Return the columns of all terms side by side, (row, column) float64."""
    parts = [each.evaluate(rows, num_rows) for each in columns]
    return np.concatenate([np.empty((num_rows, 0)), *parts], axis=1)


class Group(NamedTuple):
    """Effects of one column's levels.

    Attributes:
        number: number of the group in the formula.
        name: name of the column, as part of names of latents.
        has_intercept: whether the first effect is an intercept.
        labels: names of the effects of a level.
        sizes: root mean square of the column that each effect multiplies.
        num_levels: number of levels of the column.
        is_correlated, is_local: see `Options`.
        is_centred: whether the effects are their own coordinates (True) or multiples of their standard deviations (False);
            None if this depends on their rows, see `coordinates`.
        prefix: first part of all names; see `predictor.Terms`.
    """

    number: int
    name: str
    has_intercept: bool
    labels: tuple[str, ...]
    sizes: tuple[float, ...]
    num_levels: int
    is_correlated: bool
    is_centred: bool | None
    is_local: bool
    prefix: str = ""

    @property
    def num_effects(self) -> int:
        """Number of effects of each level."""
        return len(self.labels)

    @property
    def sd(self) -> str:
        """Latent with the standard deviation of each effect."""
        return f"{self.prefix}sd_{self.name}"

    @property
    def correlation(self) -> str:
        """Latent with the Cholesky factor of the correlations."""
        return f"{self.prefix}correlation_{self.name}"

    @property
    def correlations(self) -> str:
        """Summary with the correlations of pairs of effects."""
        return f"{self.prefix}cor_{self.name}"

    @property
    def effects(self) -> str:
        """Latent with the effects, (level, effect), in the unit of the predictor."""
        return f"{self.prefix}effects_{self.name}"

    def scale(self, latents: Latents) -> Float[Array, "effect effect"]:
        """Return the Cholesky factor of the covariance of the effects of a level."""
        sd = latents[self.sd]
        return sd[:, None] * latents[self.correlation] if self.is_correlated else jnp.diag(sd)

    def of_rows(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the contribution of the effects to the predictor of each row."""
        effects = latents[self.effects]
        if not self.is_local:
            effects = effects[rows[f"{self.prefix}group_{self.number}"]]
        total = effects[:, 0] if self.has_intercept else jnp.zeros_like(effects[:, 0])
        if self.num_effects > int(self.has_intercept):
            total = total + jnp.sum(
                effects[:, int(self.has_intercept) :] * rows[f"{self.prefix}effects_{self.number}"], axis=1
            )
        return total

    def columns_of_effects(self, rows: HostRows) -> np.ndarray:
        """Return the columns that the effects multiply, (row, effect) float64."""
        one = np.ones((len(rows["outcome"]), int(self.has_intercept)))
        slopes = f"{self.prefix}effects_{self.number}"
        return np.concatenate([one, rows[slopes]], axis=1) if slopes in rows else one

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
