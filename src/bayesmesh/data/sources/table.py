"""The user's table: CSV, TSV, Parquet, Feather or JSON lines, in one file or many, with one field for each column."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.data import base
from bayesmesh.data.base import FIELD_NAME, Dataset
from bayesmesh.data.sources.options import TableOptions as Options
from bayesmesh.data.tables.columns import choose_columns
from bayesmesh.data.tables.options import ROLES
from bayesmesh.data.tables.reader import TableReader
from bayesmesh.data.tables.spool import MatrixField, MissingField, Spool, fields_of, missing_name, variable_of
from bayesmesh.errors import DataError
from bayesmesh.files import JSON
from bayesmesh.store.records.checked import read_checked, write_checked

_ABOUT = "table.json"


class Source(base.Source):
    """One field for each column, or those of the key `fields`; numbers are float64, categories int32 codes."""

    pretty_name = "Table"
    offers = ("rating_scores",)
    options: Options

    def fetch(self, folder: Path) -> dict[str, object]:
        """Read the files block by block, and keep the chosen rows and columns in `folder`.

        Raises:
            DataError: a file, a column or a cell contradicts the options; names the file, and the row or the key.
        """
        about = TableReader(self.options).spool(folder)
        wanted = _wanted(self.options, list(about["columns"]), {*about["left_out"]})
        _refuse_clashes(wanted, about["columns"])
        roles = _roles(self.options, wanted)
        write_checked(folder / _ABOUT, about | {"fields": wanted, "roles": roles})
        return {"origin": "files", **about["counts"], "kept_rows": about["kept_rows"]}

    def read(self, folder: Path) -> Dataset:
        """Return the fields, computed on demand from the kept columns for the rows that are read."""
        about = read_checked(folder / _ABOUT, "run the fetch stage again")
        columns: dict[str, Mapping[str, Any]] = about["columns"]
        spool = Spool(folder, about["numbers"], about["codes"])
        rows = fields_of(spool, columns, about["fields"])
        variables = {
            name: variable_of(columns[column])
            for field, named in about["fields"].items()
            for name, column in ([(field, named)] if isinstance(named, str) else zip(named, named, strict=True))
        }
        of_one = [(field, named) for field, named in about["fields"].items() if isinstance(named, str)]
        ordered = [field for field, named in of_one if columns[named].get("is_ordered")]
        return Dataset(
            rows=rows,
            variables={k: dataclasses.replace(v, is_ordered=k in ordered) for k, v in variables.items()},
            labels={name: field.labels for name, field in rows.items() if isinstance(field, MatrixField)},
            roles=about["roles"],
            constants=self.options.constants,
            declared_counts={"rows": about["counts"]["kept"]},
            facts=_facts(about),
            ordered=ordered,
            absent={field: MissingField(spool, named) for field, named in of_one if "missing" in columns[named]},
        )


def _wanted(options: Options, names: list[str], left_out: set[str]) -> dict[str, str | list[str]]:
    """Return field -> its column, or the columns of its matrix.

    Raises:
        DataError: the name of a field is not valid, or its column does not exist.
    """
    wanted: dict[str, str | list[str]] = {name: name for name in names if name not in left_out}
    if options.fields:
        wanted = {}
        for field, named in options.fields.items():
            patterns = [named] if isinstance(named, str) else named
            chosen = choose_columns(names, patterns, f"data.fields.{field}")
            if not chosen:
                raise DataError(f"key 'data.fields.{field}': no column is left", "name at least one column")
            if isinstance(named, str) and chosen != [named]:
                raise DataError(
                    f"key 'data.fields.{field}': no column '{named}'",
                    f"write a list for a matrix: {field}: ['{named}']",
                )
            if not left_out & {*chosen}:
                wanted[field] = named if isinstance(named, str) else chosen
    for field in wanted:
        if not FIELD_NAME.fullmatch(field):
            raise DataError(
                f"key 'data.columns': column {field!r} cannot be the name of a field",
                f"leave it out: columns: ['*', '-{field}']; or name it:\n    data:\n      fields:\n        name: '{field}'",
            )
    return wanted


def _refuse_clashes(wanted: Mapping[str, str | list[str]], columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a field, or a column of a matrix, with the name of an indicator of missing values, which would be lost.

    Raises:
        DataError: names the key and both.
    """
    indicated = {name for name, about in columns.items() if "missing" in about and about["kind"] != "category"}
    for field, named in wanted.items():
        is_one = isinstance(named, str)
        for label, column in [(field, named)] if is_one else [(name, name) for name in named]:
            indicator = missing_name(label)
            if column in indicated and indicator in (wanted if is_one else named):
                raise DataError(
                    f"key 'data.indicate_missing': the indicator of '{label}' would replace the column '{indicator}'",
                    f"rename '{indicator}' in the file or in the key 'data.fields', or leave it out:\n"
                    f"    data:\n      columns: ['*', '-{indicator}']",
                )


def _roles(options: Options, wanted: Mapping[str, str | list[str]]) -> dict[str, str]:
    """Return role -> the field of its column.

    Raises:
        DataError: the column is not a field.
    """
    found: dict[str, str] = {}
    for role in ROLES:
        column: str | None = getattr(options, role)
        if column is None:
            continue
        fields = [field for field, named in wanted.items() if named == column]
        if not fields:
            raise DataError(f"key 'data.{role}': '{column}' is not a field", f"add it:\n    data:\n      fields:\n        {role}: '{column}'")  # fmt: skip
        found[role] = fields[0]
    return found


def _facts(about: Mapping[str, Any]) -> dict[str, JSON]:
    """Return the facts for the page: rows read and left out, and how each column was changed."""
    counts = about["counts"]
    facts: dict[str, JSON] = {"rows_read": counts["read"]}
    facts |= {f"rows_{key}": counts[key] for key in ("not_chosen", "incomplete") if counts[key]}
    facts |= {"columns_left_out": about["left_out"]} if about["left_out"] else {}
    facts |= {"warnings": about["warnings"]} if about["warnings"] else {}
    for name, column in about["columns"].items():
        if column["kind"] == "category":
            facts[f"levels of {name}"] = len(column["levels"])
        if "missing" in column:
            facts[f"missing values of {name}"] = column["missing"]
        if "mean" in column:
            facts[f"mean and scale of {name}"] = [column["mean"], column["scale"]]
    return facts
