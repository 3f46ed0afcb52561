"""Records: what is altered, missing, added or out of date is named, and nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.records import jobs
from bayesmesh.store.records.jobs import (
    check_made_from,
    check_output,
    damage_of,
    read_record,
    record_file,
    write_record,
)


def _record(results: Path, job: str, outputs: list[Path], inputs: dict[str, str] | None = None) -> jobs.Record:
    made_from = {"job": job, "specification": "s", "code": "c", "inputs": inputs or {}, "observed": {}}
    return write_record(record_file(results, "toy", job), results, outputs, made_from)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return a folder with a store and a table made from it, both recorded."""
    store, table = tmp_path / "toy" / "posterior.zarr", tmp_path / "toy" / "summary.csv"
    (store / "x" / "c").mkdir(parents=True)
    (store / "zarr.json").write_text("{}")
    (store / "x" / "c" / "0").write_bytes(bytes(jobs.ALWAYS_HASHED + 1))
    table.write_text("a,b\n1,2\n")
    made = _record(tmp_path, "assemble", [store])
    _record(tmp_path, "diagnose", [table], {"toy/posterior.zarr": made.digest("toy/posterior.zarr")})
    return tmp_path


def _alter(path: Path) -> None:
    """Change a byte, but neither size nor time."""
    about = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_results_as_they_were_written_pass(results: Path) -> None:
    assert len(check_output(results, results / "toy" / "posterior.zarr")) == 64
    check_output(results, results / "toy" / "summary.csv")
    check_made_from(results, results / "toy" / "summary.csv")


def test_a_copy_with_other_times_passes(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(results, copy, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("copy"))
    check_output(copy, copy / "toy" / "posterior.zarr")


@pytest.mark.parametrize("name", ["summary.csv", "posterior.zarr/zarr.json"])
def test_small_files_are_compared_by_content(results: Path, name: str) -> None:
    _alter(results / "toy" / name)
    with pytest.raises(StoreError, match=rf"{name}: has been altered"):
        check_output(results, results / "toy" / name)


def test_large_files_are_read_where_time_differs_or_thoroughly(results: Path) -> None:
    chunk = results / "toy" / "posterior.zarr" / "x" / "c" / "0"
    _alter(chunk)
    record = read_record(record_file(results, "toy", "assemble"))
    assert list(damage_of(results, record.outputs)) == []
    assert [line.partition(":")[0] for line in damage_of(results, record.outputs, is_thorough=True)] == [str(chunk)]
    os.utime(chunk)
    assert [line.partition(":")[0] for line in damage_of(results, record.outputs)] == [str(chunk)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda toy: shutil.rmtree(toy / "posterior.zarr"), "posterior.zarr: does not exist"),
        (lambda toy: (toy / "posterior.zarr" / "x" / "c" / "0").unlink(), "c/0: is missing"),
        (lambda toy: (toy / "posterior.zarr" / "y").write_text("?"), "y: does not belong there"),
        (lambda toy: (toy / "posterior.zarr" / "zarr.json").write_text("{} "), "3 bytes instead of 2"),
    ],
)
def test_each_change_of_a_store_is_named(results: Path, change: object, words: str) -> None:
    change(results / "toy")  # type: ignore[operator]  # a function of the parameters above
    with pytest.raises(StoreError, match=words):
        check_output(results, results / "toy" / "posterior.zarr")


def test_a_folder_in_the_place_of_a_file_is_named(results: Path) -> None:
    (results / "toy" / "summary.csv").unlink()
    (results / "toy" / "summary.csv").mkdir()
    record = read_record(record_file(results, "toy", "diagnose"))
    assert list(damage_of(results, record.outputs)) == [f"{results / 'toy' / 'summary.csv'}: not a file"]


def test_results_without_a_record_are_refused(results: Path) -> None:
    record_file(results, "toy", "diagnose").unlink()
    with pytest.raises(StoreError, match=r"summary.csv: no record of the job that wrote it") as caught:
        check_output(results, results / "toy" / "summary.csv")
    assert "snakemake --cores all toy" in str(caught.value)


def test_an_altered_record_is_named(results: Path) -> None:
    path = record_file(results, "toy", "diagnose")
    path.write_text(path.read_text().replace('"code": "c"', '"code": "d"'))
    with pytest.raises(StoreError, match=r"diagnose.json: is damaged"):
        check_output(results, results / "toy" / "summary.csv")


def test_a_result_made_from_something_else_is_out_of_date(results: Path) -> None:
    store = results / "toy" / "posterior.zarr"
    (store / "zarr.json").write_text("[]")
    _record(results, "assemble", [store])
    with pytest.raises(StoreError, match=r"summary.csv: was made from another .*posterior.zarr than the present one"):
        check_made_from(results, results / "toy" / "summary.csv")
