"""Mistakes of a user in files, as data: configurations, sweeps, tables, arrays and code, each with its refusal.

`tests/unit/test_bad_inputs.py` runs every case through the command line, in one process. Mistakes in the methods of a
model are in `tests/support/hostile.py`.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import yaml
import zarr
from pyarrow import feather, parquet

EXPERIMENT: dict[str, Any] = {
    "title": "Mine",
    "data": {"source": "table", "files": "data/good.csv"},
    "model": {"name": "glm", "formula": "y ~ x + town", "family": "normal"},
    "kernel": {"name": "hmc"},
    "sampling": {"chains": 2, "warmup": 5, "draws": 5},
    "compute": {"platform": "cpu", "mesh": {"chain": 1, "data": 1}},
}
"""An experiment that works, on `GOOD`."""

GOOD = "x,y,town\n1.5,1,Bonn\n2.5,0,Aachen\n3.5,1,Bonn\n4.0,1,Aachen\n"

ALL_VERBS = ("fetch", "shard", "compile")

Content = str | bytes | Callable[[Path], object]
"""Text or bytes of a file, or a function that writes it."""


@dataclasses.dataclass(frozen=True)
class Bad:
    """One mistake.

    Attributes:
        name: of the case.
        said: parts of the refusal: file, key or row, and what to do.
        keys: top-level keys of the experiment that differ.
        text: the experiment's file, where it cannot be written as keys.
        files: path below the project -> content.
        verbs: stages that are run until one refuses.
    """

    name: str
    said: tuple[str, ...]
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    text: str | bytes | None = None
    files: Mapping[str, Content] = dataclasses.field(default_factory=dict)
    verbs: tuple[str, ...] = ("fetch", "shard")

    def write(self, folder: Path) -> None:
        """Write the mistake into a project."""
        text = self.text if self.text is not None else yaml.safe_dump({**EXPERIMENT, **self.keys}, sort_keys=False)
        for name, content in {"config/experiments/mine.yaml": text, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)


def _key(block: str, **changes: Any) -> dict[str, Any]:
    """Return a block of the experiment with changes; None removes a key."""
    changed = {**EXPERIMENT.get(block, {}), **changes}
    return {block: {key: value for key, value in changed.items() if value is not None}}


def _text(found: str, instead: str) -> str:
    """Return the text of the experiment with a change."""
    text = yaml.safe_dump(EXPERIMENT, sort_keys=False)
    assert found in text
    return text.replace(found, instead, 1)


def _table(content: Content, ending: str = "csv", **options: Any) -> dict[str, Any]:
    """Return a data block that reads a file, and the file."""
    name = f"data/bad.{ending}"
    return {"keys": _key("data", files=name, **options), "files": {name: content}}


def _arrays(content: Content, ending: str, **options: Any) -> dict[str, Any]:
    name = f"data/bad.{ending}"
    keys = {"data": {"source": "arrays", "files": name, **options}, "model": {"name": "gaussian"}}
    return {"keys": keys, "files": {name: content}}


def _code(text: str, **block: Any) -> dict[str, Any]:
    """Return a module of the user, and keys that name it."""
    return {"keys": block, "files": {"mine_code.py": text}}


GOOD_TABLE = pa.table({"x": [1.5, 2.5, 3.5, 4.0], "y": [1, 0, 1, 0], "town": ["Bonn", "Aachen", "Bonn", "Aachen"]})


def _parquet() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(GOOD_TABLE, sink)
    return sink.getvalue()


def _feather() -> bytes:
    sink = io.BytesIO()
    feather.write_feather(GOOD_TABLE, sink, compression="uncompressed")
    return sink.getvalue()


def _npz(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def _hdf5(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    with h5py.File(sink, "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value, compression="gzip" if np.shape(value) else None)
    return sink.getvalue()


def _with_hole(content: bytes, at: bytes, length: int = 8) -> bytes:
    """Return bytes of which some are overwritten, from a mark on."""
    start = content.index(at) + len(at)
    return content[:start] + b"\xff" * length + content[start + length :]


def _zarr(break_it: Callable[[Path], object], **arrays: Any) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        group = zarr.open_group(str(path), mode="w")
        for name, value in arrays.items():
            group.create_array(name, data=np.asarray(value), chunks=np.asarray(value).shape)
        break_it(path)

    return write


def _cut_chunk(path: Path) -> None:
    (chunk,) = (file for file in (path / "x" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(chunk.read_bytes()[:3])


def _bad_json(path: Path) -> None:
    (path / "x" / "zarr.json").write_text("{")


X = np.arange(8.0).reshape(4, 2)
EXPERIMENTS_FILE = "config/experiments/mine.yaml"
WHERE = f"{EXPERIMENTS_FILE}: "

YAML = (
    Bad("a tab", (f"{EXPERIMENTS_FILE}, line 3",), text=_text("  source:", "\tsource:")),
    Bad("an open quote", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title: 'Mine")),
    Bad("an open bracket", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title: [Mine")),
    Bad("no space after a colon", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title:Mine")),
    Bad("a colon in a text", (f"{EXPERIMENTS_FILE}, line 1",), text=_text("title: Mine", "title: Mine: more")),
    Bad("an indent that fits nothing", (f"{EXPERIMENTS_FILE}, line",), text=_text("  files:", "   files:")),
    Bad("a line without a key", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title: Mine\nmore")),
    Bad("a percent sign", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title: %Mine")),
    Bad("an at sign", (f"{EXPERIMENTS_FILE}, line 1",), text=_text("title: Mine", "title: @Mine")),
    Bad("a formula with an open quote", (f"{EXPERIMENTS_FILE}, line",), text=_text("formula: y ~ x + town", "formula: \"y ~ x + town")),
    Bad("an alias", (f"{EXPERIMENTS_FILE}, line 1",), text=_text("title: Mine", "title: *other")),
    Bad("a tag", (f"{EXPERIMENTS_FILE}, line 1",), text=_text("title: Mine", "title: !!python/name:os.system")),
    Bad("a key given twice", (f"{EXPERIMENTS_FILE}, line 2", "title"), text=_text("title: Mine", "title: Mine\ntitle: More")),
    Bad("a key that is a number", (f"{EXPERIMENTS_FILE}, line 2",), text=_text("title: Mine", "title: Mine\n3: More")),
    Bad("two documents", (f"{EXPERIMENTS_FILE}, line",), text=_text("title: Mine", "title: Mine\n---\n")),
    Bad("a control character", (EXPERIMENTS_FILE,), text=_text("title: Mine", "title: Mi\x07ne")),
    Bad("Latin-1", (EXPERIMENTS_FILE, "UTF-8"), text=_text("title: Mine", "title: Ünser").encode("latin-1")),
    Bad("UTF-16", (EXPERIMENTS_FILE,), text=_text("title: Mine", "title: Unser").encode("utf-16")),
    Bad("an empty file", (f"{WHERE}the file is empty",), text=""),
    Bad("comments alone", (f"{WHERE}a configuration is a mapping",), text="# nothing\n"),
    Bad("a list", (f"{WHERE}a configuration is a mapping",), text="- title: Mine\n"),
    Bad("a merge key", (f"{WHERE}unknown key '<<'",), text=_text("title: Mine", "title: Mine\n<<: {a: 1}")),
    Bad("levels without end", (f"{EXPERIMENTS_FILE}, line",), text="title: " + "[" * 200 + "]" * 200),
)  # fmt: skip

KEYS = (
    Bad("a kernel in capitals", ("key 'kernel.name'", "did you mean 'nuts'"), _key("kernel", name="NUTS")),
    Bad("a misspelt key", ("unknown key 'sampling.drwas'", "did you mean 'draws'"), _key("sampling", drwas=5)),
    Bad("a misspelt top-level key", ("unknown key 'smapling'", "did you mean 'sampling'"), {"smapling": {}}),
    Bad("a key in capitals", ("unknown key 'sampling.Draws'", "did you mean 'draws'"), _key("sampling", Draws=5)),
    Bad("a key of another block", ("unknown key 'draws'", "sampling"), {"draws": 5}),
    Bad("a missing block", ("unknown key 'modle' (also wrong: model)", "did you mean 'model'"), text=_text("model:\n", "modle:\n")),
    Bad("no title", ("key 'title'",), {"title": ""}),
    Bad("a number as title", ("key 'title'", "string"), {"title": 5}),
    Bad("a word for a number", ("key 'sampling.draws'", "integer"), _key("sampling", draws="many")),
    Bad("a fraction of draws", ("key 'sampling.draws'",), _key("sampling", draws=5.5)),
    Bad("a yes for a bool", ("key 'benchmarks.quick'",), files={"config/config.yaml": "experiments: [mine]\nbenchmarks: {quick: yes}\n"}),
    Bad("a block without keys", ("key 'sampling'",), {"sampling": None}),
    Bad("a list for a block", ("key 'data'",), {"data": ["table"]}),
    Bad("an empty kernel", ("key 'kernel.name' is missing",), {"kernel": {}}),
    Bad("too few draws", ("key 'sampling.draws'", "greater than or equal to 4"), _key("sampling", draws=1)),
    Bad("a negative seed", ("key 'sampling.seed'",), _key("sampling", seed=-1)),
    Bad("groups that divide no chains", ("key 'sampling.chain_groups'",), _key("sampling", chains=3, chain_groups=2, mode="independent")),
    Bad("an R-hat below 1", ("key 'gates.r_hat", "1"), {"gates": {"r_hat": 0.9}}),
    Bad("a negative effective size", ("key 'gates.ess_bulk",), {"gates": {"ess_bulk": -5}}),
    Bad("an effective size beyond all draws", ("key 'gates.ess_bulk", "10"), {"gates": {"ess_bulk": 1e9}}),
    Bad("a share above 1", ("key 'gates.divergences",), {"gates": {"divergences": 3}}),
    Bad("a severity that does not exist", ("key 'gates.r_hat", "severity"), {"gates": {"r_hat": {"limit": 1.01, "severity": "stop"}}}),
    Bad("a rule without a target", ("key 'sampling.stop'", "no target"), _key("sampling", stop={})),
    Bad("a look after the end", ("key 'sampling.stop.first_look'",), _key("sampling", stop={"min_ess_bulk": 400})),
    Bad("an unknown start", ("key 'sampling.initial.method'",), _key("sampling", initial={"method": "best"})),
    Bad("a word as start", ("key 'sampling.initial'", "mapping"), _key("sampling", initial="prior")),
    Bad("a spread of zero", ("key 'sampling.initial.spread'",), _key("sampling", initial={"spread": 0})),
    Bad("no file of starts", ("key 'sampling.initial.file'", "names no file", "start.json"), _key("sampling", initial={"method": "file"})),
    Bad("a file of starts that nobody reads", ("key 'sampling.initial.file'", "'auto'"), _key("sampling", initial={"file": "a.json"})),
    Bad("a file of starts that is not there", ("key 'sampling.initial.file'", "a.json: cannot be read: No such file"),
        _key("sampling", initial={"method": "file", "file": "a.json"}), verbs=("compile",)),
    Bad("an unknown metric", ("key 'kernel.metric'", "did you mean 'dense'"), _key("kernel", metric="dens")),
    Bad("an unknown source", ("key 'data.source'", "did you mean 'table'"), _key("data", source="tabel")),
    Bad("an unknown family", ("key 'model.family'", "bernoulli"), _key("model", family="bernouli")),
    Bad("an acceptance above 1", ("key 'kernel.target_acceptance'",), _key("kernel", target_acceptance=1.5)),
    Bad("an analysis that the data do not offer", ("key 'averaging'", "source 'table'"), {"averaging": {}}),
    Bad("an analysis of nothing", ("key 'recommendation'",), {"recommendation": {}}),
    Bad("averaging of a regression", ("key 'averaging'", "classification"),
        {"data": {"source": "digits"}, "model": {"name": "neural_network", "task": "regression"}, "averaging": {}}),
    Bad("a name of a target", ("config/experiments/all.yaml", "taken"), files={"config/experiments/all.yaml": yaml.safe_dump(EXPERIMENT)}, verbs=("all",)),
    Bad("a file with another ending", ("config/experiments/mine.yml",), files={"config/experiments/mine.yml": "title: Mine\n"}, verbs=("all",)),
    Bad("a name with blanks", ("my study", "not a valid name"), files={"config/experiments/my study.yaml": yaml.safe_dump(EXPERIMENT)}, verbs=("all",)),
    Bad("an experiment without a file", ("config/config.yaml", "no experiment 'mien'", "did you mean 'mine'"), files={"config/config.yaml": "experiments: [mien]\n"}),
    Bad("a list of nothing", ("config/config.yaml", "key 'experiments'"), files={"config/config.yaml": "experiments: []\n"}),
    Bad("a word for a list", ("config/config.yaml", "key 'experiments'", "[mine]"), files={"config/config.yaml": "experiments: mine\n"}),
)  # fmt: skip

SWEEPS = (
    Bad("a sweep over an unknown key", ("member 'mine-prior_scal-1'", "unknown key 'model.prior_scal'"), {"sweep": {"grid": {"model.prior_scal": [1, 2]}}}),
    Bad("a sweep over a value that is not valid", ("draws",), {"sweep": {"grid": {"sampling.draws": [10, "many"]}}}),
    Bad("a sweep over nothing", ("key 'sweep",), {"sweep": {"grid": {"sampling.seed": []}}}),
    Bad("a sweep of one word", ("key 'sweep",), {"sweep": "sampling.seed"}),
    Bad("a sweep of a scalar", ("key 'sweep",), {"sweep": {"grid": {"sampling.seed": 3}}}),
    Bad("a sweep with the same member twice", ("sweep",), {"sweep": {"grid": {"sampling.seed": [1, 1]}}}),
    Bad("a sweep over a sweep", ("key 'sweep",), {"sweep": {"grid": {"sweep.grid": [1, 2]}}}),
    Bad("a sweep of too many", ("key 'sweep",), {"sweep": {"grid": {"sampling.seed": list(range(200)), "sampling.draws": list(range(10, 110))}}}),
    Bad("a sweep with cases of one name", ("key 'sweep", "name"), {"sweep": {"cases": [{"name": "a", "sampling.seed": 1}, {"name": "a", "sampling.seed": 2}]}}),
    Bad("a sweep that is empty", ("key 'sweep'",), {"sweep": {}}),
)  # fmt: skip

TABLES = (
    Bad("a file that is not there", ("key 'data.files'", "data/none.csv"), _key("data", files="data/none.csv")),
    Bad("a pattern that finds nothing", ("key 'data.files'", "data/*.tsv"), _key("data", files="data/*.tsv")),
    Bad("no files at all", ("key 'data.files'",), _key("data", files=None)),
    Bad("an empty table", ("data/bad.csv", "empty"), **_table("")),
    Bad("a header alone", ("no rows",), **_table("x,y,town\n")),
    Bad("a line with a cell too many", ("data/bad.csv, row 3", "4 cells, and the header has 3"), **_table(GOOD.replace("3.5,1,Bonn", "3.5,1,Bonn,7"))),
    Bad("a line with a cell too few", ("data/bad.csv",), **_table(GOOD.replace("3.5,1,Bonn", "3.5,1"))),
    Bad("another delimiter", ("data/bad.csv", "no comma, but ';'"), **_table(GOOD.replace(",", ";"))),
    Bad("a column twice", ("data/bad.csv", "two columns are called 'x'"), **_table(GOOD.replace("x,y", "x,x", 1))),
    Bad("a missing value", ("data/bad.csv", "row 3", "x", "missing: drop"), **_table(GOOD.replace("3.5", ""))),
    Bad("a column of missing values", ("data/bad.csv", "x"), **_table("x,y,town\n,1,Bonn\n,0,Aachen\n")),
    Bad("a NaN", ("data/bad.csv", "row 3", "x"), **_table(GOOD.replace("3.5", "nan"))),
    Bad("an infinity", ("data/bad.csv", "row 3", "x"), **_table(GOOD.replace("3.5", "inf"))),
    Bad("a word among numbers", ("data/bad.csv", "row 3", "x", "three"), **_table(GOOD.replace("3.5", "three"))),
    Bad("a decimal comma", ("data/bad.csv", "row 1", "1,5"), **_table(GOOD.replace("1.5", '"1,5"').replace("2.5", '"2,5"'), types={"x": "number"})),
    Bad("a number beyond the range", ("data/bad.csv", "row 3", "x"), **_table(GOOD.replace("3.5", "1e999"))),
    Bad("a table in Latin-1", ("data/bad.csv", "UTF"), **_table(GOOD.replace("Aachen", "Köln").encode("latin-1"))),
    Bad("a table in UTF-16", ("data/bad.csv",), **_table(GOOD.encode("utf-16"))),
    Bad("a binary file", ("data/bad.csv",), **_table(bytes(range(256)) * 4)),
    Bad("a spreadsheet", ("data/bad.xlsx", "as CSV"), **_table(b"PK\x03\x04" + bytes(100), "xlsx")),
    Bad("half a gzip", ("data/bad.csv.gz",), **_table(gzip.compress(GOOD.encode())[:30], "csv.gz")),
    Bad("no gzip", ("data/bad.csv.gz",), **_table(GOOD, "csv.gz")),
    Bad("half a Parquet file", ("data/bad.parquet",), **_table(_parquet()[:-40], "parquet")),
    Bad("a hole in a Parquet file", ("data/bad.parquet",), **_table(_parquet()[:4] + bytes(60) + _parquet()[64:], "parquet")),
    Bad("a CSV named Parquet", ("data/bad.parquet",), **_table(GOOD, "parquet")),
    Bad("a list in Parquet", ("data/bad.parquet", "'x'"), **_table(lambda path: parquet.write_table(pa.table({"x": [[1.0], [2.0]], "y": [1, 0], "town": ["a", "b"]}), path), "parquet")),
    Bad("half a Feather file", ("data/bad.feather",), **_table(_feather()[:-40], "feather")),
    Bad("a hole in a Feather file", ("data/bad.feather",), **_table(_feather()[:-60] + b"\xff" * 40 + _feather()[-20:], "feather")),
    Bad("half a line of JSON", ("data/bad.jsonl, line 2",), **_table('{"x": 1}\n{"x": \n', "jsonl")),
    Bad("a list in a line of JSON", ("data/bad.jsonl, line 1", "'x'"), **_table('{"x": [1, 2]}\n', "jsonl")),
    Bad("JSON in Latin-1", ("data/bad.jsonl", "UTF-8"), **_table('{"town": "Köln"}\n'.encode("latin-1"), "jsonl")),
    Bad("columns of two files that differ", ("data/bad.csv", "no column 'town'"),
        _key("data", files=["data/good.csv", "data/bad.csv"]), files={"data/bad.csv": "x,y\n1,2\n"}),
    Bad("a folder that is empty", ("key 'data.files'", "data/none"), _key("data", files="data/none"), files={"data/none": Path.mkdir}),
    Bad("a file that cannot be read", ("data/bad.csv",), **_table(lambda path: path.symlink_to(path.name))),
    Bad("an unknown column", ("key 'data.columns'", "'z'"), _key("data", columns=["x", "y", "z"])),
    Bad("an unknown column of a field", ("key 'data.fields.f'", "twon"), _key("data", fields={"f": "twon"})),
    Bad("an unknown column with a type", ("key 'data.types", "did you mean 'x'"), _key("data", types={"X": "number"})),
    Bad("a category as a number", ("data/good.csv", "row 1", "town", "Bonn"), _key("data", types={"town": "number"})),
    Bad("a level that is not listed", ("data/good.csv", "row 1", "Bonn"), _key("data", levels={"town": ["Aachen", "Ulm"]})),
    Bad("a category to standardise", ("key 'data.standardise'", "town"), _key("data", standardise=["town"])),
    Bad("a constant to standardise", ("x",), **_table(GOOD.replace("2.5", "1.5").replace("3.5", "1.5").replace("4.0", "1.5"), standardise=["x"])),
    Bad("a filter that is wrong", ("key 'data.rows'",), _key("data", rows="x >")),
    Bad("a filter of an unknown column", ("key 'data.rows'", "z"), _key("data", rows="z > 1")),
    Bad("a filter that calls", ("key 'data.rows'",), _key("data", rows="__import__('os').system('x') > 0")),
    Bad("a filter that leaves nothing", ("data.rows",), _key("data", rows="x > 100")),
    Bad("a filter that leaves one row", ("key 'model.formula'", "'town' has one level"), _key("data", rows="x > 3.9"), verbs=ALL_VERBS),
    Bad("a split that leaves one row", ("key 'data.held_out_fraction'", "1"), _key("data", held_out_fraction=0.75)),
    Bad("a split by an unknown field", ("key 'data.held_out_groups'", "did you mean 'town'"), _key("data", held_out_fraction=0.5, held_out_groups="towns")),
    Bad("a split by one group", ("key 'data.held_out_groups'",), **_table(GOOD.replace("Aachen", "Bonn"), held_out_fraction=0.5, held_out_groups="town")),
    Bad("a split of nothing", ("key 'data.held_out_groups'", "held_out_fraction"), _key("data", held_out_groups="town")),
    Bad("two splits", ("held_out_last",), _key("data", held_out_fraction=0.5, held_out_groups="town", held_out_last="x")),
)  # fmt: skip

ARRAYS = (
    Bad("half an NPZ file", ("data/bad.npz",), **_arrays(_npz(x=X)[:100], "npz")),
    Bad("a hole in an NPZ file", ("data/bad.npz",), **_arrays(_npz(x=X)[:-160] + bytes(60) + _npz(x=X)[-100:], "npz")),
    Bad("pickled objects", ("data/bad.npz", "'x'"), **_arrays(_npz(x=np.array([{}, None])), "npz")),
    Bad("texts in an array", ("data/bad.npz", "'x'"), **_arrays(_npz(x=np.array(["a", "b"])), "npz")),
    Bad("complex numbers", ("data/bad.npz", "'x'"), **_arrays(_npz(x=X + 1j), "npz")),
    Bad("arrays of unequal length", ("data/bad.npz", "unequal"), **_arrays(_npz(x=X, y=X[:3]), "npz")),
    Bad("an array without rows", ("data/bad.npz", "'x'"), **_arrays(_npz(x=X[:0]), "npz")),
    Bad("NaN in an array", ("row 2, counted from 1",), **_arrays(_npz(x=np.where(X == 2, np.nan, X)), "npz")),
    Bad("an array that is not there", ("data/bad.npz", "no array 'z'"), **_arrays(_npz(x=X), "npz", arrays={"x": "z"})),
    Bad("half an HDF5 file", ("data/bad.h5",), **_arrays(_hdf5(x=X)[:900], "h5")),
    Bad("a hole in an HDF5 file", ("data/bad.h5",), **_arrays(_with_hole(_hdf5(x=X), b"\x78\x5e"), "h5")),
    Bad("no HDF5 file", ("data/bad.h5",), **_arrays(b"hello", "h5")),
    Bad("no NetCDF file", ("data/bad.nc",), **_arrays(b"hello", "nc")),
    Bad("an empty HDF5 file", ("data/bad.h5",), **_arrays(_hdf5(), "h5")),
    Bad("half a chunk of Zarr", ("data/bad.zarr",), **_arrays(_zarr(_cut_chunk, x=X), "zarr")),
    Bad("broken metadata of Zarr", ("data/bad.zarr",), **_arrays(_zarr(_bad_json, x=X), "zarr")),
    Bad("an empty folder as Zarr", ("data/bad.zarr",), **_arrays(Path.mkdir, "zarr")),
    Bad("half a JSON file", ("data/bad.json",), **_arrays('{"x": [1, 2', "json")),
    Bad("ragged JSON", ("data/bad.json", "'x'"), **_arrays('{"x": [[1, 2], [3]]}', "json")),
    Bad("texts in JSON", ("data/bad.json", "'x'"), **_arrays('{"x": ["a"]}', "json")),
    Bad("an unknown ending", ("data/bad.mat", "data.format"), **_arrays(b"MATLAB", "mat")),
)  # fmt: skip

FORMULAS = (
    Bad("an unknown term", ("key 'model.formula'", "did you mean 'town'"), _key("model", formula="y ~ x + towns")),
    Bad("an unknown outcome", ("key 'model.formula'", "no column 'z'"), _key("model", formula="z ~ x")),
    Bad("an unknown group", ("key 'model.formula'", "did you mean 'town'"), _key("model", formula="y ~ x + (1 | twon)")),
    Bad("no outcome", ("key 'model.formula'",), _key("model", formula="x + town")),
    Bad("a formula that ends", ("key 'model.formula'",), _key("model", formula="y ~ x +")),
    Bad("an open bracket in a formula", ("key 'model.formula'",), _key("model", formula="y ~ x + (1 | town")),
    Bad("a call in a formula", ("key 'model.formula'",), _key("model", formula="y ~ __import__('os').system('x')")),
    Bad("an empty formula", ("key 'model.formula'",), _key("model", formula="")),
    Bad("an outcome that is no count", ("y", "row"), _key("model", formula="x ~ town", family="poisson")),
    Bad("an outcome that is not 0 or 1", ("x", "row"), _key("model", formula="x ~ town", family="bernoulli")),
    Bad("an outcome that is a category", ("town",), _key("model", formula="town ~ x", family="normal")),
    Bad("an unknown prior", ("key 'model.priors",), _key("model", priors={"x": "gauss(0, 1)"})),
    Bad("a prior of an unknown term", ("key 'model.priors",), _key("model", priors={"z": "normal(0, 1)"})),
)  # fmt: skip

MODEL = """
from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model
class Options(Settings):
    scale: float = 1.0
class Mine(Model):
    pretty_name = "Mine"
    offers = ()
"""


def _model(name: str, **options: Any) -> dict[str, Any]:
    return {"model": {"name": name, "options": options}}


CODE = (
    Bad("a module that is not there", ("key 'model.name'", "nowhere"), _model("nowhere.models:Mine")),
    Bad("an attribute that is not there", ("key 'model.name'", "Mien", "did you mean 'Mine'"), **_code(MODEL, **_model("mine_code:Mien"))),
    Bad("a class that is no model", ("mine_code:Options", "not a subclass"), **_code(MODEL, **_model("mine_code:Options"))),
    Bad("a function as model", ("key 'model.name'", "mine"), **_code(MODEL + "def mine(): ...\n", **_model("mine_code:mine"))),
    Bad("a module that raises", ("mine_code.py, line 2", "RuntimeError: no"), **_code("\nraise RuntimeError('no')\n" + MODEL, **_model("mine_code:Mine"))),
    Bad("a module that ends the process", ("mine_code", "exit(3)", "__name__"), **_code("import sys\nsys.exit(3)\n" + MODEL, **_model("mine_code:Mine"))),
    Bad("a module that is no Python", ("mine_code.py, line 1",), **_code("def (:\n", **_model("mine_code:Mine"))),
    Bad("a module in Latin-1", ("mine_code.py",), **_code(b"# K\xf6ln\n" + MODEL.encode(), **_model("mine_code:Mine"))),
    Bad("a model without options", ("mine_code.py", "class Options"), **_code(MODEL.replace("class Options", "class Other"), **_model("mine_code:Mine"))),
    Bad("an option that is not valid", ("key 'model.options.scale'",), **_code(MODEL, **_model("mine_code:Mine", scale="wide"))),
    Bad("an unknown option", ("unknown key 'model.options.scal'", "did you mean 'scale'"), **_code(MODEL, **_model("mine_code:Mine", scal=1.0))),
    Bad("options that import", ("mine_code.py", "class Options"), **_code(MODEL.replace("float = 1.0", "np.ndarray"), **_model("mine_code:Mine"))),
    Bad("a name without an attribute", ("key 'model.name'",), _model("mine_code:")),
    Bad("a path as a name", ("key 'model.name'",), {"model": {"name": "models/mine.py"}}),
    Bad("a source that is not there", ("key 'data.source'", "nowhere"), {"data": {"source": "nowhere:Source"}}),
    Bad("a kernel that is not there", ("key 'kernel.name'", "nowhere"), {"kernel": {"name": "nowhere:Kernel"}}),
    Bad("a function that is not there", ("key 'model.function'", "did you mean 'density'"),
        **_code("def density(latents, data): ...\n", model={"name": "log_density", "function": "mine_code:densty", "prior": {"m": "normal(0, 1)"}})),
    Bad("a log density without a prior", ("key 'model'", "prior"),
        **_code("def density(latents, data): ...\n", model={"name": "log_density", "function": "mine_code:density"})),
    Bad("a prior that is no distribution", ("key 'model.prior.m'",),
        **_code("def density(latents, data): ...\n", model={"name": "log_density", "function": "mine_code:density", "prior": {"m": "normal(0"}})),
    Bad("a log density that is no number", ("key 'model.function'", "shape"),
        **_code("def density(latents, data): return data['x'] * latents['m']\n",
                model={"name": "log_density", "function": "mine_code:density", "prior": {"m": "normal(0, 1)"}})),
    Bad("a log density of an unknown field", ("mine_code.py, line 1", "asks for 'z'"),
        **_code("def density(latents, data): return (data['z'] * latents['m']).sum()\n",
                model={"name": "log_density", "function": "mine_code:density", "prior": {"m": "normal(0, 1)"}})),
    Bad("a test point outside of its support", ("key 'model.test_point",),
        **_code("def density(latents, data): return -latents['m'] ** 2\n",
                model={"name": "log_density", "function": "mine_code:density", "test_point": {"m": -1.0}, "support": {"m": "positive"}})),
)  # fmt: skip

_COMPILED = (dataclasses.replace(case, verbs=("compile",)) for case in (*FORMULAS, *CODE))

ALL = (*YAML, *KEYS, *SWEEPS, *TABLES, *ARRAYS, *_COMPILED)
"""The last ones find the data of the good experiment sharded."""
