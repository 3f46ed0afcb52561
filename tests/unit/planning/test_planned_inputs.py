"""What a job reads is recorded, in whatever way it is read, and a change of it is found."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import os
import runpy
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.data.fetching import MIRROR_VARIABLE
from bayesmesh.planning import planned_inputs
from bayesmesh.planning.plan_specs import StageSpec, make_spec
from bayesmesh.planning.planned_inputs import changed, digest_of, observe, present_digests

MODEL = "from own.parts import scale\n\n\nclass Own:\n    pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a package of a user, a model's data and results, which is the current folder."""
    for name, text in {
        "own/__init__.py": "", "own/model.py": MODEL, "own/parts.py": "scale = 2\n", "own/other.py": "x = 1\n",
        "results/some/table.csv": "a\n1\n", "data/table.csv": "a,b\n1,2\n", "config/config.yaml": "",
        ".hidden/state": "1",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "data/table.db").touch()
    np.save(tmp_path / "data/table.npy", np.arange(3))
    with gzip.open(tmp_path / "data/table.gz", "wt") as file:
        file.write("1\n")
    with zipfile.ZipFile(tmp_path / "data/table.zip", "w") as archive:
        archive.writestr("a", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own", "loaded", "installed")]:
        del sys.modules[name]


def spec(stage: str = "compile", kernel: str = "hmc") -> StageSpec:
    some = {
        "title": "Some", "data": {"source": "gaussian"}, "model": {"name": "own.model:Own"}, "kernel": {"name": kernel},
    }  # fmt: skip
    return make_spec(stage, "some", experiment_class().model_validate(some), "results")


def read_by(read: Callable[[], object], stage: str = "compile") -> dict[str, str]:
    with observe(spec(stage)) as observation:
        read()
        return observation.files()


def _load(path: str) -> Any:
    made = importlib.util.spec_from_file_location("loaded", path)
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def _descriptor(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _unzip(path: str) -> None:
    with gzip.open(path) as file:
        file.read()


def _fail(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        Path(path).read_text()


READS: dict[str, tuple[Callable[[], object], str]] = {
    "open": (lambda: open("data/table.csv").close(), "data/table.csv"),
    "Path": (lambda: Path("data/table.csv").read_bytes(), "data/table.csv"),
    "an absolute path": (lambda: Path("data/table.csv").absolute().read_text(), "data/table.csv"),
    "os.open": (lambda: _descriptor("data/table.csv"), "data/table.csv"),
    "os.open of a path": (lambda: os.close(os.open(Path("data/table.csv"), os.O_RDONLY)), "data/table.csv"),
    "bytes": (lambda: open(b"data/table.csv").close(), "data/table.csv"),
    "pandas": (lambda: pd.read_csv("data/table.csv"), "data/table.csv"),
    "numpy": (lambda: np.load("data/table.npy"), "data/table.npy"),
    "genfromtxt": (lambda: np.genfromtxt("data/table.csv", delimiter=","), "data/table.csv"),
    "fromfile": (lambda: np.fromfile("data/table.npy", np.uint8), "data/table.npy"),
    "memmap": (lambda: np.memmap("data/table.npy", np.uint8), "data/table.npy"),
    "gzip": (lambda: _unzip("data/table.gz"), "data/table.gz"),
    "pandas and gzip": (lambda: pd.read_csv("data/table.gz", compression="gzip"), "data/table.gz"),
    "zipfile": (lambda: zipfile.ZipFile("data/table.zip").read("a"), "data/table.zip"),
    "sqlite3": (lambda: sqlite3.connect("data/table.db").close(), "data/table.db"),
    "import_module": (lambda: importlib.import_module("own.other"), "own/other.py"),
    "a file's loader": (lambda: _load("own/other.py"), "own/other.py"),
    "runpy": (lambda: runpy.run_path("own/other.py"), "own/other.py"),
    "exec": (lambda: exec(Path("own/other.py").read_text()), "own/other.py"),
}


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("way", READS)
def test_a_file_is_observed_in_whatever_way_it_is_read(project: Path, way: str) -> None:
    read, name = READS[way]
    found = read_by(read)
    assert [file for file in found if file != "own/__init__.py"] == [name]
    assert changed(found) == []
    path = project / name
    path.write_bytes(path.read_bytes() + b"\ny = 2\n")
    assert changed(found) == [name]
    path.unlink()
    assert changed(found) == [name]


@pytest.mark.parametrize("stage", ["fetch", "shard", "sample", "assemble"])
def test_every_stage_is_observed(project: Path, stage: str) -> None:
    assert list(read_by(READS["pandas"][0], stage)) == ["data/table.csv"]


def test_a_module_is_observed_where_its_compiled_form_is_read(project: Path) -> None:
    # The first load writes it.
    for _ in range(2):
        found = read_by(lambda: _load("own/other.py"))
        assert list(found) == ["own/other.py"]
    (project / "own/other.py").write_text("# A comment.\nx = 1\n")
    assert changed(found) == []
    (project / "own/other.py").write_text("x = 2\n")
    assert changed(found) == ["own/other.py"]


def test_other_threads_and_outer_blocks_observe_the_same(project: Path) -> None:
    with observe(spec()) as outer, observe(spec()) as inner:
        thread = threading.Thread(target=READS["open"][0])
        thread.start()
        thread.join()
        assert list(inner.files()) == list(outer.files()) == ["data/table.csv"]


def test_nothing_is_observed_outside_of_a_block(project: Path) -> None:
    READS["open"][0]()
    with observe(spec()) as observation:
        pass
    READS["numpy"][0]()
    assert observation.files() == {}


def test_code_that_the_fingerprint_covers_is_left_out(project: Path) -> None:
    def load() -> None:
        importlib.import_module("own.model")
        importlib.import_module("bayesmesh.kernels.hmc")

    assert read_by(load) == {}
    # The stage that runs no model has no fingerprint of it.
    for name in [name for name in sys.modules if name.startswith("own")]:
        del sys.modules[name]
    assert list(read_by(load, "diagnose")) == ["own/__init__.py", "own/model.py", "own/parts.py"]


def test_a_component_of_the_package_that_loads_another_file_by_name_is_observed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_inputs, "PACKAGE_ROOT", project)
    for name in ("models/loaded.py", "models/table.txt", "report/loaded.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x = 1\n")

    def load(folder: str) -> None:
        monkeypatch.syspath_prepend(str(project / folder))
        sys.modules.pop("loaded", None)
        importlib.import_module("loaded")

    assert list(read_by(lambda: (load("models"), Path("models/table.txt").read_text()))) == [
        "models/loaded.py", "models/table.txt"
    ]  # fmt: skip
    # Other code of the package is loaded by name where a stage must not depend on it.
    assert read_by(lambda: load("report")) == {}


def _write() -> None:
    Path("data/new.csv").write_text("1")
    Path("data/new.csv").read_text()
    Path("data/moved.csv").write_text("1")
    Path("data/moved.csv").replace("data/there.csv")
    Path("data/there.csv").read_text()


@pytest.mark.parametrize(
    "read",
    [
        lambda: Path("results/some/table.csv").read_text(),
        lambda: Path("config/config.yaml").read_text(),
        lambda: Path(".hidden/state").read_text(),
        lambda: Path("/proc/self/status").read_text(),
        lambda: Path(os.__file__).read_text(),
        lambda: Path(np.__file__).read_text(),
        lambda: Path(planned_inputs.__file__).read_text(),
        lambda: list(Path("data").iterdir()),
        lambda: os.close(os.open("data", os.O_RDONLY)),
        lambda: os.fdopen(os.open(os.devnull, os.O_RDONLY)).close(),
        lambda: _fail("data/none.csv"),
        _write,
    ],
)
def test_other_files_are_not_observed(project: Path, read: Callable[[], object]) -> None:
    assert read_by(read) == {}


def test_the_mirror_and_temporary_files_are_not_observed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_text("1")
        assert read_by(lambda: (Path(folder) / "file").read_text()) == {}
    (project / "mirror").mkdir()
    (project / "mirror/file").write_text("1")
    assert list(read_by(lambda: Path("mirror/file").read_text())) == ["mirror/file"]
    monkeypatch.setenv(MIRROR_VARIABLE, "mirror")
    assert read_by(lambda: Path("mirror/file").read_text()) == {}


def test_a_file_elsewhere_has_its_whole_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = project / "data"
    monkeypatch.setattr(planned_inputs, "_OF_SYSTEM", ())
    monkeypatch.setattr(tempfile, "tempdir", str(project / "results"))
    monkeypatch.chdir(project / "own")
    assert list(read_by(lambda: (inner / "table.csv").read_text(), "diagnose")) == [str(inner / "table.csv")]


def test_a_file_that_changes_while_it_is_read_is_changed(project: Path) -> None:
    def read() -> None:
        Path("data/table.csv").read_text()
        # Another process, so that the job itself has not written it.
        subprocess.run([sys.executable, "-c", "open('data/table.csv', 'w').write('2')"], check=True)

    found = read_by(read)
    assert changed(found) == ["data/table.csv"]
    assert changed(read_by(READS["open"][0])) == []


@pytest.mark.parametrize(("limit", "is_seen"), [("ALWAYS_HASHED", False), ("MANY", False), (None, True)])
def test_size_and_time_stand_for_large_and_for_many_files(
    project: Path, limit: str | None, is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(planned_inputs, limit, 0)
    found, path = read_by(READS["open"][0]), project / "data/table.csv"
    before = path.stat()
    path.write_text("a,b\n1,3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert bool(changed(found)) == is_seen
    # A different time alone is not a change.
    path.write_text("a,b\n1,2\n")
    assert changed(found) == []


def test_the_content_of_the_largest_files_is_not_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_inputs, "NEVER_HASHED", 0)
    found, path = read_by(READS["open"][0]), project / "data/table.csv"
    assert changed(found) == []
    os.utime(path, ns=(0, 0))
    assert changed(found) == ["data/table.csv"]


def test_what_looks_like_python_and_is_not_is_compared_by_bytes(project: Path) -> None:
    path = project / "data/text.py"
    path.write_text("no python\n")
    before = digest_of(path)
    path.write_text("no python  # at all\n")
    assert digest_of(path) != before


def test_present_digests_name_missing_files(project: Path) -> None:
    assert present_digests(["none", "own/other.py"]) == {
        "none": "missing",
        "own/other.py": digest_of(Path("own/other.py")),
    }
