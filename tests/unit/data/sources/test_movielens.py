"""MovieLens: parsing and fetching a small set of the same form, facts with the real one."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import fetch
from bayesmesh.data.sharding import shard
from bayesmesh.data.sources import movielens
from bayesmesh.data.sources.movielens import parse_files, read_archive
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout

SMALL = {
    "ratings.dat": b"2::30::5::978300760\n1::30::1::0\n1::9::3::978301968\n",
    "movies.dat": "9::Café: the film (1999)::Drama\n10::Unrated (2000)::War\n30::Second (2001)::Comedy|Children's\n".encode(
        "latin-1"
    ),
    "users.dat": b"1::F::1::10::48067\n2::M::56::16::70072\n3::M::25::15::55117-1234\n",
}


@pytest.fixture
def source() -> movielens.Source:
    return movielens.Source(movielens.Options())


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with three users and three films."""
    folder = tmp_path / "mirror" / "ml-1m"
    folder.mkdir(parents=True)
    for name, content in SMALL.items():
        (folder / name).write_bytes(content)
    monkeypatch.setenv("BAYESMESH_MIRROR", str(folder.parent))
    return folder


@pytest.mark.usefixtures("small")
def test_small_set_goes_through(source: movielens.Source, layout: DataLayout) -> None:
    manifest = fetch(source, {"name": "movielens"}, layout)
    assert manifest["origin"]["identity"] == "local files, checksums unknown"
    assert len(manifest["origin"]["files"]["ratings.dat"]["sha256"]) == 64
    data = source.read(layout.records)
    assert data.rows["watched"].tolist() == [[1, 1], [0, 1], [0, 0]]
    assert data.columns == {
        "film_id": [9, 30],
        "title": ["Café: the film (1999)", "Second (2001)"],
        "genres": [["Drama"], ["Comedy", "Children's"]],
        "user_id": [1, 2, 3],
    }
    assert "tensorflow" not in sys.modules


@pytest.mark.usefixtures("small")
def test_ratings_are_rows(source: movielens.Source, layout: DataLayout) -> None:
    fetch(source, {"name": "movielens"}, layout)
    data = movielens.Source(movielens.Options(values="ratings")).read(layout.records)
    rows = {name: values[:].tolist() for name, values in data.rows.items()}
    assert rows == {"user": [0, 0, 1], "film": [0, 1, 1], "rating": [3, 1, 5]}
    assert [data.rows[name].dtype for name in ("user", "film", "rating")] == [np.int32, np.int32, np.uint8]
    assert data.variables["user"].levels == ("1", "2", "3")
    assert data.variables["film"].levels == ("Café: the film (1999)", "Second (2001)")
    assert (data.kind, data.declared_counts) == ("rows", {"rows": 1000209})


@pytest.mark.parametrize(
    ("name", "line", "content", "reason"),
    [
        ("ratings.dat", 2, b"1::30::five::0", "expected user::film::rating"),
        ("ratings.dat", 1, b"2::30::5", "expected user::film::rating"),
        ("ratings.dat", 3, b"1::9::6::978301968", "expected user::film::rating"),
        ("ratings.dat", 2, b"", "expected user::film::rating"),
        ("ratings.dat", 1, b"7::30::5::0", "unknown user"),
        ("ratings.dat", 3, b"1::11::5::0", "unknown film"),
        ("ratings.dat", 3, b"1::30::5::0", "rated twice"),
        ("movies.dat", 2, b"x::Unrated::War", "expected film::title"),
        ("movies.dat", 2, b"9::Again::War", "second line with this id"),
        ("users.dat", 1, b"1::X::1::10::48067", "expected user::M or F"),
    ],
)
def test_bad_line_is_named(
    source: movielens.Source, layout: DataLayout, small: Path, name: str, line: int, content: bytes, reason: str
) -> None:
    lines = SMALL[name].split(b"\n")
    lines[line - 1] = content
    (small / name).write_bytes(b"\n".join(lines))
    message = f"{small / name}: line {line}: {reason}"
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        fetch(source, {}, layout)
    assert caught.value.message.endswith(repr(content.decode()))
    assert not layout.fetched.exists()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {f"ml-1m/{name}": content for name, content in SMALL.items()})
    assert read_archive(path) == SMALL
    assert parse_files(read_archive(path), path).films.tolist() == [9, 30]


@pytest.mark.real_data
def test_split_hides_a_tenth_of_each_user(movielens_dataset: Dataset, layout: DataLayout) -> None:
    manifest = shard(movielens_dataset, DataSettings(held_out_fraction=0.1), layout)
    assert manifest["activity"]["most_active"] == {"user": 4168, "films": 2314}
    assert abs(manifest["counts"]["held_out"] / 1000209 - 0.1) < 0.005


@pytest.mark.parametrize(
    ("films", "rated", "said"),
    [
        ([9, 30, 9], [9], "a film is listed twice"),
        ([9, 30], [9, 9], "user 1: rated a film twice"),
        ([9, 30], [9, 10], "user 1: rated a film twice, or one that is not listed"),
    ],
)
def test_records_that_do_not_match_are_refused(
    source: movielens.Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    films: list[int],
    rated: list[int],
    said: str,
) -> None:
    def feature(*values: object) -> SimpleNamespace:
        held = SimpleNamespace(value=values)
        return SimpleNamespace(int64_list=held, bytes_list=held)

    found = {
        "films": [{"film_id": feature(film), "title": feature(b"A"), "genres": feature(b"Drama")} for film in films],
        "users": [{"user_id": feature(1), "film_ids": feature(*rated)}],
    }
    monkeypatch.setattr(movielens._tfds, "read_records", lambda folder, _: found[folder.parent.name])
    with pytest.raises(DataError, match=said):
        source.read(tmp_path)
