"""Guess an experiment from a table and a formula: kinds of columns, columns to leave out, and the family of the outcome."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bayesmesh.config.checks import check_experiment
from bayesmesh.config.experiment import component_options
from bayesmesh.data.base import FIELD_NAME
from bayesmesh.data.sources.options import TableOptions
from bayesmesh.data.tables.columns import INDEX
from bayesmesh.data.tables.reader import TableReader
from bayesmesh.data.tables.spool import Spool
from bayesmesh.errors import DataError, locating, suggest
from bayesmesh.models.glm.formula import Factor, parse_formula


def guess_experiment(title: str, table: Path, formula: str) -> tuple[str, list[str]]:
    """Return the text of an experiment's file, and lines about what was guessed.

    The whole table is read once, block by block, in the way in which the experiment will read it.

    Args:
        title: title of the experiment.
        table: file with the rows.
        formula: formula of the model, a `glm`.

    Raises:
        ConfigError: the formula cannot be read, or names a column that the table does not have.
        DataError: the table is missing or cannot be read; the message names file and row.
    """
    if not table.is_file():
        others = [str(each) for each in table.parent.glob(f"*{table.suffix}")]
        raise DataError(f"--table {table}: no such file", suggest(str(table), others))
    data: dict[str, Any] = {"source": "table", "files": str(table)}
    model = {"name": "glm", "formula": formula}
    content = {"title": title, "data": data, "model": model, "predictive_checks": {}}
    # Rows are dropped only for values that the formula needs.
    complete = check_experiment(table, {**content, "data": {**data, "missing": "drop"}})
    options = TableOptions.model_validate(component_options("source", dict(complete.data)))
    with tempfile.TemporaryDirectory() as folder:
        about = TableReader(options).spool(Path(folder))
        spool, columns = Spool(Path(folder), about["numbers"], about["codes"]), about["columns"]
        num_read = about["counts"]["read"]
        left_out = {name: "names the rows" if INDEX.fullmatch(name) else "lacks values" for name in about["left_out"]}
        others = [name for name in columns if name not in {*left_out, *(options.needed or ())}]
        useless = {name: why for name in others if (why := _why_useless(name, columns[name], spool, num_read))}
        left_out |= useless
        with locating(str(table)):
            # First with all columns, so that an error suggests those that lack values too.
            parse_formula(formula, {*columns, *about["left_out"]} - {""})
            terms = parse_formula(formula, [name for name in columns if name not in left_out])
        family, why = _guess_family(terms.outcome, columns, spool)
    groups = {each.group for each in terms.groups if columns[each.group]["kind"] != "category"}
    if useless:
        data["columns"] = ["*", *(f"-{name}" for name in useless)]
    if groups:
        data["types"] = dict.fromkeys(sorted(groups), "category")
    if (incomplete := about["counts"]["incomplete"]) or "lacks values" in left_out.values():
        data["missing"] = "drop"
    if family != "normal":
        model["family"] = family
    predictors = (f"{name} ({_kind(columns[name], is_group=name in groups)})" for name in sorted(terms.predictors))
    dropped = f", after dropping {incomplete:,} without a value of the formula" if incomplete else ""
    lines = [
        f"{table}: {about['counts']['kept']:,} rows{dropped}",
        f"predictors: {', '.join(predictors) or 'none'}",
        f"family: {family}, because {terms.outcome.text} {why}",
        *(f"left out: '{name}', which {reason}" for name, reason in left_out.items()),
    ]
    head = "# All keys, their defaults and what they mean: config/README.md\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000), lines


def _kind(about: Mapping[str, Any], *, is_group: bool) -> str:
    if is_group:
        return "numbers that name groups"
    return f"category of {len(about['levels']):,} levels" if about["kind"] == "category" else about["kind"]


def _why_useless(name: str, about: Mapping[str, Any], spool: Spool, num_read: int) -> str:
    """Return why a column that the formula does not name is not data, as the end of a sentence; empty if it may be.

    Args:
        name: of the column.
        about: its description.
        spool: the rows that were kept.
        num_read: number of rows of the table, of which some may have been dropped.
    """
    if not FIELD_NAME.fullmatch(name):
        return "has a name that no field can have"
    if about["kind"] == "category":
        return "has another text in every row" if len(about["levels"]) == spool.num_rows > 1 else ""
    first, last = spool.read(name, 0, 1)[0], -np.inf
    for start, stop in spool.blocks():
        steps = np.diff(spool.read(name, start, stop), prepend=last)
        last = spool.read(name, stop - 1, stop)[0]
        if not (steps[np.isfinite(steps)] % 1 == 0).all() or (steps <= 0).any():
            return ""
    # Whole numbers that rise by 1 for each row of the table, from 0 or 1; those of dropped rows are absent.
    is_number = first % 1 == 0 and first >= 0 and last <= num_read and last - first < num_read
    return "numbers the rows" if is_number else ""


def _guess_family(outcome: Factor, columns: Mapping[str, Mapping[str, Any]], spool: Spool) -> tuple[str, str]:
    """Return the family of an outcome, and why, as the end of a sentence."""
    (name, *_) = outcome.names
    if not outcome.is_plain:
        return "normal", "is computed from columns"
    if levels := columns[name].get("levels"):
        of_two = "bernoulli", f"has two levels, of which '{levels[-1]}' counts as 1"
        return of_two if len(levels) == 2 else ("categorical", f"has {len(levels):,} levels")
    low, high, is_whole = np.inf, -np.inf, True
    for block in (spool.read(name, start, stop) for start, stop in spool.blocks()):
        low, high = min(low, block.min()), max(high, block.max())
        is_whole = is_whole and bool((block == np.floor(block)).all())
    if not is_whole:
        return "normal", "is continuous"
    if (low, high) == (0, 1):
        return "bernoulli", "is 0 or 1"
    if low == 0:
        return "negative_binomial", "holds whole numbers from 0, which seem to be counts"
    return "normal", "holds whole numbers that do not begin with 0"
