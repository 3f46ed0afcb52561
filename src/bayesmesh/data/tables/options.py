"""Options for reading a table, importable without the libraries that read it; those of the source `table` are the same."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bayesmesh.config.settings import ColumnName, Files, Settings

ROLES = ("weights", "offset", "exposure")
"""Options that assign a role to a column."""


class TableOptions(Settings):
    """Options of `table`."""

    files: Files = Field(
        min_length=1,
        description="The file, or a list of files, folders (with everything below them) and patterns such as "
        "`data/part-*.csv`, relative to the folder of the project. Folders such as `year=2020` become columns. A "
        "changed file is read again.",
        examples=[["data/growth.csv"]],
    )
    format: Literal["csv", "tsv", "parquet", "feather", "jsonl"] | None = Field(
        None,
        description="Format of the files; by default, determined by the file extension.",
        examples=["csv"],
    )
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="Delimiter of CSV files, if it is not a comma.",
        examples=[";"],
    )
    rows: str = Field(
        "",
        max_length=4000,
        description="Condition for the rows to keep, such as `price > 0 and town in ['Bonn', 'Aachen'] and not "
        "missing(rooms)`; all by default. As in SQL, a comparison with a missing value is not true.",
        examples=["price > 0 and town in ['Bonn', 'Aachen']"],
    )
    columns: tuple[str, ...] = Field(
        ("*",),
        min_length=1,
        description="Columns to keep, by name or pattern; `-name` leaves one out again. Each becomes a field with its "
        "name.",
    )
    fields: dict[str, str | list[str]] = Field(
        {},
        description="Field -> a column, or a list of columns and patterns that form a matrix, to which a category "
        "contributes one column for each level but the first. If given, these are the only fields.",
        examples=[{"x": ["temp_*", "wind"]}],
    )
    types: dict[str, Literal["number", "integer", "category", "time"]] = Field(
        {},
        description="Column, by name or pattern -> its kind, where this is not evident; `time` becomes days since 1970. In a text format, a "
        "column is numeric if its first value is a number.",
        examples=[{"zip": "category"}],
    )
    levels: dict[str, list[str]] = Field(
        {},
        description="Category, by name or pattern -> all its levels in the order of their codes; by default, the levels "
        "found, sorted.",
        examples=[{"dose": ["low", "high"]}],
    )
    standardise: tuple[str, ...] = Field(
        (),
        description="Numeric columns to standardise, by name or pattern: subtract the mean and divide by the standard "
        "deviation. Both numbers are kept.",
        examples=[["age"]],
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="What to do with a row that has a missing value; dropped rows are counted."
    )
    needed: tuple[str, ...] | None = Field(
        None,
        description="Fields whose missing values count; others that have any are left out. By default, those that the "
        "formula of `glm` and other keys name if `missing` is `drop`, else all.",
        examples=[["y", "x"]],
    )
    indicate_missing: tuple[str, ...] = Field(
        (),
        description="Columns, by name or pattern, whose missing values are kept. A missing number becomes the mean, "
        "marked in a field `name_missing` of 0 and 1; a missing category becomes the level `(missing)`.",
        examples=[["income"]],
    )
    missing_values: tuple[str, ...] | None = Field(
        None,
        description="Texts that count as missing values; by default, the empty text, NA, N/A, NaN, nan, NULL, null and "
        "None in text formats, and none in others.",
        examples=[["NA", "-999"]],
    )
    weights: ColumnName | None = Field(
        None,
        description="Column with the weights of the rows, which must be 0 or greater. Models that would ignore it are "
        "refused.",
        examples=["weight"],
    )
    offset: ColumnName | None = Field(
        None,
        description="Column that is added to the linear predictor of a regression, without a coefficient.",
        examples=["log_area"],
    )
    exposure: ColumnName | None = Field(
        None,
        description="Column, such as a time at risk, to which the mean is proportional; its numbers must be greater "
        "than 0.",
        examples=["days_at_risk"],
    )
    constants: dict[str, float | int] = Field(
        {},
        description="Constants that the model reads in addition to the rows, such as `num_classes`.",
        examples=[{"num_classes": 10}],
    )
