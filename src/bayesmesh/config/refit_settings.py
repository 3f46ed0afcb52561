"""Settings of analyses that refit, and of what each refit leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from bayesmesh.config.settings import Settings, does_not_fit

MOST_NAMED = 3
"""Rows that a title names; of more it says how many."""


class Split(Settings):
    """How the training rows are divided into folds: at random unless a field is named."""

    folds: int = Field(10, ge=2, le=1000)
    """Number of folds. Each is left out in turn, in a separate job that samples again."""
    group: str | None = Field(None, min_length=1, examples=["school"])
    """Field, such as a school, whose values define groups: whole groups of rows are left out together."""
    future: str | None = Field(None, min_length=1, examples=["day"])
    """Field, such as a time: each fold is predicted only from rows with smaller values; later rows are not used."""
    strata: str | None = Field(None, min_length=1, examples=["species"])
    """Field, such as a class, that stratifies random folds: each fold gets an equal share of the rows of each value."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the random assignment of rows, or of groups, to folds."""
    first_share: float = Field(0.5, gt=0, lt=1)
    """For `future`: share of the rows that precede the first fold; these are never scored."""

    @model_validator(mode="after")
    def _check_fields(self) -> Split:
        named = [key for key in ("group", "future", "strata") if getattr(self, key) is not None]
        if len(named) > 1:
            raise does_not_fit(named[0], f"not together with {named[1]}", "keep one of the two")
        if self.future is None and self.first_share != type(self).model_fields["first_share"].default:
            raise does_not_fit(
                "first_share", "without `future`, all rows are scored", "remove it, or add `future: FIELD`"
            )
        return self


class LeftOut(Split):
    """Training rows that are left out and scored instead: those of a fold, or named ones."""

    fold: int = Field(1, ge=1)
    """Number of the fold to leave out, from 1."""
    rows: tuple[int, ...] | None = Field(None, min_length=1)
    """Rows to leave out instead of a fold, numbered from 0 in the order of the training data."""
    asked_by: str | None = None
    """Key of the analysis that requests the refit, for use in messages. Written by the analysis."""

    @model_validator(mode="after")
    def _check_fold(self) -> LeftOut:
        if self.fold > self.folds:
            raise does_not_fit("fold", f"there are {self.folds} folds, found {self.fold}", f"use 1 to {self.folds}")
        return self

    def key(self, option: str) -> str:
        """Return the key under which an option was written, for messages.

        >>> LeftOut(asked_by="own").key("group"), LeftOut().key("group")
        ("key 'own.group'", "key 'data.left_out.group'")
        """
        if self.asked_by is not None and option == "rows":
            return f"key '{self.asked_by}'"
        return f"key '{self.asked_by or 'data.left_out'}.{option}'"

    @property
    def words(self) -> str:
        """Description of the rows left out, for titles."""
        if self.rows is not None and len(self.rows) > MOST_NAMED:
            return f"without {len(self.rows)} rows"
        if self.rows is not None:
            return f"without {'row' if len(self.rows) == 1 else 'rows'} {', '.join(map(str, self.rows))}"
        return f"without fold {self.fold} of {self.folds}"


class Refits(Settings):
    """Settings of an analysis that compares with refits; the base class of its ``Options``."""

    def left_out(self) -> Mapping[str, LeftOut]:
        """Return name suffix -> rows left out, for each refit, in the order in which `run` gets them."""
        raise NotImplementedError


class Folds(Refits, Split):
    """Settings of an analysis whose refits are the folds of a split."""

    def left_out(self) -> Mapping[str, LeftOut]:
        """Return the folds."""
        split = {key: getattr(self, key) for key in Split.model_fields}
        digits = len(str(self.folds))
        numbers = range(1, self.folds + 1)
        return {f"fold-{n:0{digits}d}-of-{self.folds}": LeftOut(**split, fold=n) for n in numbers}
