"""Read and check the text files of MovieLens-1M, from the official archive or from a folder."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from bayesmesh.errors import DataError

ENCODING = "latin-1"
FILES = ("ratings.dat", "movies.dat", "users.dat")
MAX_BYTES = {"ratings.dat": 2**26, "movies.dat": 2**22, "users.dat": 2**22}
"""More than twice the published sizes, in bytes; a larger member is not the data set."""

_LINES = {
    "ratings.dat": (rb"\d{1,9}::\d{1,9}::[1-5]::\d{1,18}", "user::film::rating (1 to 5)::seconds"),
    "movies.dat": (rb"\d{1,9}::[^\n]+::[^\n]+", "film::title::genre|genre"),
    "users.dat": (rb"\d{1,9}::[MF]::\d{1,3}::\d{1,3}::[^:\n]+", "user::M or F::age::occupation::zip code"),
}
"""File -> pattern of a line, and its form in words."""


class MovieLens(NamedTuple):
    """The data set as arrays and lists.

    Attributes:
        ratings: (num_ratings, 4) int64: user, film, rating, seconds; sorted by user, then film.
        films: ascending ids of the films with a rating, int64.
        titles, genres: titles and genres of these films, in this order.
        users: ascending user id -> gender, age, occupation.
    """

    ratings: np.ndarray
    films: np.ndarray
    titles: list[str]
    genres: list[list[str]]
    users: dict[int, tuple[str, int, int]]


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the contents of the three files in a folder.

    Raises:
        DataError: a file is missing or too large.
    """
    contents = {}
    for name in FILES:
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path}: missing", f"put {', '.join(FILES)} of MovieLens-1M into {folder}")
        if path.stat().st_size > MAX_BYTES[name]:
            raise DataError(f"{path}: {path.stat().st_size} bytes, at most {MAX_BYTES[name]} expected")
        contents[name] = path.read_bytes()
    return contents


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the three files of ``ml-1m.zip`` without unpacking anything to disk.

    Raises:
        DataError: it is not a zip file, a member has an absolute path or ``..``, or a file is missing or too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            for name in members:
                if name.startswith(("/", "\\")) or "\\" in name or ".." in PurePosixPath(name).parts:
                    raise DataError(f"{path}: unsafe member name {name!r}")
            contents = {}
            for name in FILES:
                info = members.get(f"ml-1m/{name}")
                if info is None:
                    raise DataError(f"{path}: no member ml-1m/{name}")
                if info.file_size > MAX_BYTES[name]:
                    raise DataError(f"{path}: member {info.filename}: {info.file_size} bytes, too large")
                with archive.open(info) as file:  # The declared size may be wrong: read no more than allowed.
                    contents[name] = file.read(MAX_BYTES[name] + 1)
                if len(contents[name]) != info.file_size:
                    raise DataError(f"{path}: member {info.filename}: size differs from the declared one")
            return contents
    except (zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: not a whole zip file: {error}") from error


def parse_files(contents: dict[str, bytes], where: Path) -> MovieLens:
    """Check every line of the three files and decode them.

    Args:
        contents: file name -> bytes.
        where: folder or archive, for messages.

    Raises:
        DataError: a line is malformed, rates an unknown film or user, or is the second rating of the same film by the
            same user. The message gives the file, number and content of the first such line.
    """
    lines = {name: _checked_lines(contents[name], name, where) for name in FILES}
    movies = _table(lines["movies.dat"], where / "movies.dat")
    users = {
        user: (fields[0], int(fields[1]), int(fields[2]))
        for user, fields in sorted(_table(lines["users.dat"], where / "users.dat").items())
    }
    values = np.fromstring(b" ".join(lines["ratings.dat"]).replace(b"::", b" "), np.int64, sep=" ").reshape(-1, 4)
    for column, known, what in ((0, users, "user"), (1, movies, "film")):
        unknown = np.flatnonzero(~np.isin(values[:, column], list(known)))
        if unknown.size:
            _fail(where / "ratings.dat", int(unknown[0]), lines["ratings.dat"], f"unknown {what}")
    order = np.lexsort((values[:, 1], values[:, 0]))
    same = np.flatnonzero((np.diff(values[order, :2], axis=0) == 0).all(axis=1))
    if same.size:
        _fail(where / "ratings.dat", int(max(order[same[0] : same[0] + 2])), lines["ratings.dat"], "rated twice")
    films = np.unique(values[:, 1])
    return MovieLens(
        ratings=values[order],
        films=films,
        titles=[movies[int(film)][0] for film in films],
        genres=[movies[int(film)][1].split("|") for film in films],
        users=users,
    )


def _checked_lines(content: bytes, name: str, where: Path) -> list[bytes]:
    """Return the lines of a file; one match over the whole file is far cheaper than one per line."""
    text = content.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    pattern, form = _LINES[name]
    lines = text[:-1].split(b"\n")
    matched = re.match(rb"(?:" + pattern + rb"\n)*+", text)
    if matched is not None and matched.end() < len(text):
        _fail(where / name, text.count(b"\n", 0, matched.end()), lines, f"expected {form}")
    return lines


def _table(lines: list[bytes], path: Path) -> dict[int, list[str]]:
    """Return first field -> other fields; titles may contain single but not double colons."""
    table: dict[int, list[str]] = {}
    for number, line in enumerate(lines):
        key, *fields = line.decode(ENCODING).split("::")
        if int(key) in table:
            _fail(path, number, lines, "second line with this id")
        table[int(key)] = fields
    return table


def _fail(path: Path, number: int, lines: list[bytes], reason: str) -> None:
    content = lines[number][:80].decode(ENCODING)
    raise DataError(f"{path}: line {number + 1}: {reason}: {content!r}", "get the file again, or fix the line")
