"""Find the films that a user names, by title or by id, one on each line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bayesmesh.data.base import Column
from bayesmesh.errors import DataError
from bayesmesh.files import read_bytes

_YEAR = re.compile(r"\s*\(\d{4}\)$")
_ARTICLE = re.compile(r"^(.*), (the|a|an)$")


def read_watched(path: Path, columns: Mapping[str, Column], num_films: int) -> list[int]:
    """Return the columns of the watch matrix that a file names, in its order.

    A line is an id of the dataset or a title, in upper or lower case; the year may be omitted if only one film has the
    title. Empty lines and lines that begin with ``#`` are skipped.

    Raises:
        DataError: the file cannot be read or names no film, or a line names no film, several films, or a film that an
            earlier line names; the message gives the file and the line.
    """
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file", "name a text file with a title or an id on each line") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: is not a file", "name a text file with a title or an id on each line") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not text in UTF-8: {error.reason}", "save it as UTF-8") from error
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
