"""Find the films that a user names, by title or by id, one on each line, and the ratings of a new user."""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.data.base import Column
from bayesmesh.errors import DataError
from bayesmesh.files import read_bytes

_YEAR = re.compile(r"\s*\(\d{4}\)$")
_ARTICLE = re.compile(r"^(.*), (the|a|an)$")


def _read_lines(path: Path, remedy: str) -> list[str]:
    try:
        return read_bytes(path).decode("utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file", remedy) from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: not a file", remedy) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not text in UTF-8: {error.reason}", "save it as UTF-8") from error


def read_watched(path: Path, columns: Mapping[str, Column], num_films: int) -> list[int]:
    """Return the columns of the watch matrix that a file names, in its order.

    A line is an id of the dataset or a title, in upper or lower case; the year may be omitted if only one film has the
    title. Empty lines and lines that begin with ``#`` are skipped.

    Raises:
        DataError: the file cannot be read or names no film, or a line names no film, several films, or a film that an
            earlier line names; the message gives the file and the line.
    """
    lines = _read_lines(path, "name a text file with a title or an id on each line")
    where = {f"{path}, line {number}": line.strip() for number, line in enumerate(lines, 1)}
    named = {place: line for place, line in where.items() if line and not line.startswith("#")}
    if not named:
        raise DataError(f"{path}: names no film", "write a title or an id on each line")
    return find_films(named, columns, num_films)


def find_films(named: Mapping[str, str], columns: Mapping[str, Column], num_films: int) -> list[int]:
    """Return the columns of the watch matrix that the given texts name.

    Args:
        named: position of a text, for messages -> title or id.
        columns: ``film_id`` and ``title`` of the dataset; without ids, films are numbered from 0.
        num_films: columns of the watch matrix.

    Raises:
        DataError: see `read_watched`.

    >>> titles = {"film_id": [10, 20], "title": ["Matrix, The (1999)", "Alien (1979)"]}
    >>> find_films({"line 1": "the matrix", "line 2": "20"}, titles, 2)
    [0, 1]
    """
    ids = {str(film): column for column, film in enumerate(columns.get("film_id", range(num_films)))}
    titles = [str(title) for title in columns.get("title", [])]
    known: dict[str, set[int]] = {}
    for column, title in enumerate(titles):
        for form in _forms(title):
            known.setdefault(form, set()).add(column)
    first: dict[int, str] = {}
    for place, text in named.items():
        found = {ids[text]} if text in ids else known.get(_folded(text), set())
        if len(found) != 1:
            raise _unclear(place, text, sorted(found), titles, known)
        (column,) = found
        if column in first:
            raise DataError(f"{place}: '{text}' is the film of {first[column]}", "remove one of the two")
        first[column] = place
    return list(first)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _forms(title: str) -> set[str]:
    """Return the ways to write a title: with or without its year, with its article in front or at the end.

    >>> sorted(_forms("Matrix, The (1999)"))
    ['matrix, the', 'matrix, the (1999)', 'the matrix', 'the matrix (1999)']
    """
    whole = _folded(title)
    plain = _YEAR.sub("", whole)
    year = whole[len(plain) :]
    turned = _ARTICLE.sub(r"\2 \1", plain)
    return {form for name in {plain, turned} for form in (name, name + year)}


def _unclear(
    place: str, text: str, found: Sequence[int], titles: Sequence[str], known: Mapping[str, set[int]]
) -> DataError:
    if found:
        listed = "; ".join(titles[column] for column in found)
        return DataError(f"{place}: '{text:.80}' is the title of {len(found)} films", f"write one of: {listed}")
    near = difflib.get_close_matches(_folded(text), known, n=1)
    hint = f"did you mean '{titles[min(known[near[0]])]}'? " if near else ""
    return DataError(f"{place}: no film '{text:.80}'", f"{hint}write a title or an id of the dataset")


EXAMPLE = "write, for example\n    film,rating\n    The Matrix,5"


class Scale(NamedTuple):
    """Ratings that may be given.

    Attributes:
        low, high: the smallest and the largest of the data.
        levels: possible values if ratings are ordered; otherwise empty.
    """

    low: float
    high: float
    levels: np.ndarray


def read_rated(path: Path, film: str, rating: str) -> dict[str, tuple[str, str]]:
    """Return position of a line, for messages -> its film and its rating, as text.

    The first line names the columns; other columns are ignored. Values are separated by commas, semicolons or tabs. Empty
    lines are skipped.

    Args:
        path: the file.
        film, rating: names of the columns in the data; ``film`` and ``rating`` are accepted too.

    Raises:
        DataError: the file cannot be read, lacks a column or a rating, or a line has the wrong number of values.
    """
    lines = _read_lines(path, f"name a CSV file with the columns {film} and {rating}")
    header = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=header.count)
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    found: dict[str, tuple[str, str]] = {}
    columns: list[str] | None = None
    for row in rows:
        if not any(value.strip() for value in row):
            continue
        place = f"{path}, line {rows.line_num}"
        if columns is None:
            columns = [value.strip() for value in row]
            of_film, of_rating = (
                _column(place, columns, (own, word)) for own, word in ((film, "film"), (rating, "rating"))
            )
            continue
        if len(row) != len(columns):
            problem = f"{place}: {len(row)} values, and {len(columns)} columns"
            raise DataError(problem, 'put a title with a comma in quotes: "Matrix, The (1999)",5')
        found[place] = row[of_film].strip(), row[of_rating].strip()
    if not found:
        raise DataError(f"{path}: holds no rating", EXAMPLE)
    return found


def _column(place: str, columns: list[str], names: tuple[str, ...]) -> int:
    for name in names:
        if columns.count(name) == 1:
            return columns.index(name)
    problem = f"{place}: the first line names the columns {', '.join(columns)}, and not '{names[-1]}' once"
    raise DataError(problem, EXAMPLE)


def find_rated(
    named: Mapping[str, tuple[str, str]], columns: Mapping[str, Column], num_films: int, scale: Scale
) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of the named films, int64, and their ratings, float64.

    Args:
        named: position of a line, for messages -> film and rating.
        columns: ``film_id`` and ``title`` of the dataset.
        num_films: films of the dataset.
        scale: ratings that may be given.

    Raises:
        DataError: a film is unknown or named twice, or a rating is not a number or not on the scale.

    >>> titles, scale = {"film_id": [10, 20], "title": ["Alien", "Up"]}, Scale(1, 5, np.zeros(0))
    >>> [found.tolist() for found in find_rated({"line 2": ("up", "4.5")}, titles, 2, scale)]
    [[1], [4.5]]
    """
    if not named:
        raise DataError("no film is rated", "give at least one rating")
    films = find_films({place: film for place, (film, _) in named.items()}, columns, num_films)
    values = [_value(place, film, text, scale) for place, (film, text) in named.items()]
    return np.array(films, np.int64), np.array(values)


def _value(place: str, film: str, text: str, scale: Scale) -> float:
    about = f"{place}: the rating of '{film:.80}' is '{text:.40}'"
    try:
        value = float(text)
    except ValueError as error:
        raise DataError(f"{about}, which is not a number", "write a number") from error
    if len(scale.levels):
        if not np.isclose(scale.levels, value, rtol=1e-9, atol=0).any():
            known = ", ".join(f"{level:g}" for level in scale.levels)
            raise DataError(f"{about}, which is not one of the ratings of the data", f"write one of {known}")
        return float(scale.levels[np.argmin(np.abs(scale.levels - value))])
    if not math.isfinite(value) or not scale.low <= value <= scale.high:
        raise DataError(
            f"{about}, and ratings of the data lie between {scale.low:g} and {scale.high:g}", "write one between them"
        )
    return value
