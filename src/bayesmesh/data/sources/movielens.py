"""MovieLens-1M: 6,040 users and 3,706 films, as a watch matrix, 1 where the user rated the film, or as ratings.

The data come from the official archive if there is one, verified by its registered checksum; otherwise from a folder with
the three text files, with their own checksums. TensorFlow Datasets writes array_record: not its `movielens` (a record per
rating, five minutes to write), but `movielens_watch`, a record per user and one per film, under a name of our own. The
terms of use forbid redistribution: this project contains none of the data.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Column, Dataset, Variable
from bayesmesh.data.fetching import mirror_folder, verify_file
from bayesmesh.data.sources import _tfds
from bayesmesh.data.sources.options import MovielensOptions as Options
from bayesmesh.errors import DataError

ARCHIVE = "ml-1m.zip"
NAME, VERSION = "movielens_watch", "1.0.0"
HOMEPAGE = "https://grouplens.org/datasets/movielens/1m/"
COUNTS = {"rows": 6040, "columns": 3706, "interactions": 1000209}
NEEDED = (
    "DIR holds ml-1m.zip (https://files.grouplens.org/datasets/movielens/ml-1m.zip), or DIR/ml-1m its files "
    "ratings.dat, movies.dat and users.dat"
)
RECONSTRUCTED = {
    "ratings.dat": "b424fd474c9f2564303715843d3501187d8842841a27b8892325ccf950a2c12d",
    "movies.dat": "0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
    "users.dat": "1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3",
}
"""sha256 of a known set of files: films, users and ratings as published, but with a fifth of the times set to 0."""

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


class Source(base.Source):
    """Users and films by ascending id, without films that have no rating.

    Field ``watched`` (6040, 3706) uint8; or ``user`` and ``film`` int32 and ``rating`` uint8, one row per rating.
    """

    pretty_name = "MovieLens-1M"
    mirror_files = ("ml-1m.zip", "ml-1m/*.zip", "ml-1m/*.dat")
    offers = ("recommendation", "neighbours", "rating_scores")
    options: Options

    def fetch(self, folder: Path) -> dict[str, object]:
        """Find the files, check every line, and write array_record files in `folder`.

        Raises:
            DataError: there is neither mirror nor network (raised within 10 seconds), or a line is invalid; names file,
                line and content.
        """
        import tensorflow_datasets as tfds

        contents, where, origin = _find(folder)
        parsed = parse_files(contents, where)
        number, text, numbers = np.int64, tfds.features.Text(), tfds.features.Tensor(shape=(None,), dtype=np.int64)
        about_user = {"user_id": number, "gender": text, "age": number, "occupation": number}
        for config, examples, features in (
            ("users", _users(parsed), about_user | dict.fromkeys(("film_ids", "ratings", "timestamps"), numbers)),
            ("films", _films(parsed), {"film_id": number, "title": text, "genres": text}),
        ):
            _tfds.write_records(folder, NAME, VERSION, {"train": examples}, features, config=config, homepage=HOMEPAGE)
        return {**origin, "written_by": f"{NAME} {VERSION}, tensorflow-datasets {tfds.__version__}"}

    def read(self, folder: Path) -> Dataset:
        """Rebuild the matrix or the ratings from array_record files.

        Raises:
            DataError: a file is missing or damaged, or users and films do not match.
        """
        prepared = folder / NAME
        film_ids: list[int] = []
        titles: list[str] = []
        genres: list[list[str]] = []
        for features in _tfds.read_records(prepared / "films" / VERSION, "train"):
            film_ids.append(features["film_id"].int64_list.value[0])
            titles.append(features["title"].bytes_list.value[0].decode())
            genres.append(features["genres"].bytes_list.value[0].decode().split("|"))
        column = {film: number for number, film in enumerate(film_ids)}
        if len(column) != len(film_ids):
            raise DataError(f"{prepared}: a film is listed twice", "run fetch again")
        user_ids: list[int] = []
        films: list[np.ndarray] = []
        ratings: list[np.ndarray] = []
        for features in _tfds.read_records(prepared / "users" / VERSION, "train"):
            user_ids.append(features["user_id"].int64_list.value[0])
            rated = features["film_ids"].int64_list.value
            if len(set(rated)) != len(rated) or not column.keys() >= set(rated):
                problem = "rated a film twice, or one that is not listed"
                raise DataError(f"{prepared}: user {user_ids[-1]}: {problem}", "run fetch again")
            films.append(np.array([column[film] for film in rated], np.int32))
            ratings.append(np.array(features["ratings"].int64_list.value, np.uint8))
        columns: dict[str, Column] = {"film_id": film_ids, "title": titles, "genres": genres, "user_id": user_ids}
        if self.options.values == "ratings":
            return _as_ratings(films, ratings, columns)
        watched = np.zeros((len(films), len(film_ids)), np.uint8)
        for row, rated_films in zip(watched, films, strict=True):
            row[rated_films] = 1
        return Dataset(rows={"watched": watched}, columns=columns, declared_counts=COUNTS, kind="interactions")


def _as_ratings(films: list[np.ndarray], ratings: list[np.ndarray], columns: dict[str, Column]) -> Dataset:
    """Return a row for each rating, sorted by user, then film."""
    users = np.repeat(np.arange(len(films), dtype=np.int32), [len(each) for each in films])
    return Dataset(
        rows={"user": users, "film": np.concatenate(films), "rating": np.concatenate(ratings)},
        columns=columns,
        variables={
            "user": Variable("category", levels=tuple(str(each) for each in columns["user_id"])),
            "film": Variable("category", levels=tuple(str(each) for each in columns["title"])),
            "rating": Variable("number"),
        },
        declared_counts={"rows": COUNTS["interactions"]},
    )


def _find(folder: Path) -> tuple[dict[str, bytes], Path, dict[str, object]]:
    """Return the files' contents, where they were found, and the origin record."""
    archive = _tfds.registered_files("movielens", [ARCHIVE])[ARCHIVE]
    mirror = mirror_folder()
    if mirror is None:
        _tfds.require_network(archive.url, NEEDED)
        path = _tfds.download({ARCHIVE: archive}, folder / "downloads")[ARCHIVE]
    else:
        found = [path for path in (mirror / ARCHIVE, mirror / "ml-1m" / ARCHIVE) if path.is_file()]
        if not found:
            return _find_texts(mirror)
        path = found[0]
        verify_file(path, archive)
    return read_archive(path), path, {
        "origin": str(path) if mirror else "network",
        "files": {ARCHIVE: {"bytes": archive.size, "sha256": archive.sha256}},
        "identity": "official archive, checksum registered by TFDS",
    }  # fmt: skip


def _find_texts(mirror: Path) -> tuple[dict[str, bytes], Path, dict[str, object]]:
    where = mirror / "ml-1m"
    if not where.is_dir():
        raise DataError(f"{mirror}: neither {ARCHIVE} nor the folder ml-1m in it", f"make sure that {NEEDED}")
    contents = read_folder(where)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return contents, where, {
        "origin": str(where),
        "files": {name: {"bytes": len(contents[name]), "sha256": found} for name, found in sums.items()},
        "identity": "local files, known reconstruction" if sums == RECONSTRUCTED else "local files, checksums unknown",
    }  # fmt: skip


def _users(parsed: MovieLens) -> Iterator[dict[str, object]]:
    ids = list(parsed.users)
    bounds = np.searchsorted(parsed.ratings[:, 0], [*ids, ids[-1] + 1])
    for user, start, stop in zip(ids, bounds, bounds[1:], strict=False):
        gender, age, occupation = parsed.users[user]
        _, films, ratings, seconds = parsed.ratings[start:stop].T
        about = {"user_id": user, "gender": gender, "age": age, "occupation": occupation}
        yield {**about, "film_ids": films, "ratings": ratings, "timestamps": seconds}


def _films(parsed: MovieLens) -> Iterator[dict[str, object]]:
    for film, title, genres in zip(parsed.films, parsed.titles, parsed.genres, strict=True):
        yield {"film_id": int(film), "title": title, "genres": "|".join(genres)}


# -- the text files, from the official archive or from a folder -----------------------------------------------------------


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
