"""Patterns name files, folders and globs; a pattern that names nothing is refused with what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.errors import DataError
from bayesmesh.store.records.files import find_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.csv", "a.csv", "year=2020/p.csv", "year=2019/p.csv", ".hidden", "year=2020/_SUCCESS"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["data/b.csv", "data/a.csv"], ["data/b.csv", "data/a.csv"]),
        (["data/*.csv"], ["data/a.csv", "data/b.csv"]),
        (["data/year=2020"], ["data/year=2020/p.csv"]),
        (["data"], ["data/a.csv", "data/b.csv", "data/year=2019/p.csv", "data/year=2020/p.csv"]),
        (["data/year=*"], ["data/year=2019/p.csv", "data/year=2020/p.csv"]),
        (["data/*"], ["data/a.csv", "data/b.csv"]),
        (["data/**/p.csv"], ["data/year=2019/p.csv", "data/year=2020/p.csv"]),
    ],
)
def test_files_are_found_in_order(folder: Path, patterns: list[str], names: list[str]) -> None:
    assert [str(path) for path in find_files(patterns, "data.files")] == names


@pytest.mark.parametrize(
    ("pattern", "message", "remedy"),
    [
        ("data/c.csv", "key 'data.files': data/c.csv: no such file", "a.csv"),
        ("data/*.tsv", "data/.*: no file has such a name", "a.csv"),
        ("empty", "empty: the folder holds no file", "data, empty"),
    ],
)
def test_nothing_found_is_refused(folder: Path, pattern: str, message: str, remedy: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        find_files([pattern], "data.files")
    assert remedy in caught.value.remedy
