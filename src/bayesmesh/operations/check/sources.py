"""The checks of a source: the requirements of docs/contracts/source.md, tested on its data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.config.declarations import read_offers
from bayesmesh.config.settings import Settings, file_options
from bayesmesh.config.user_code import explaining
from bayesmesh.data import sharding
from bayesmesh.data.base import Dataset, RowArray, Source
from bayesmesh.data.shards import fingerprint_data
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.operations.check.line import FAILS, LEFT_OUT, OK, Line, check_options, run_checks
from bayesmesh.store.records.files import find_files

_BLOCK_ROWS = 4096


class Read(NamedTuple):
    """A source, and what it has read.

    Attributes:
        name: of the source.
        source_class, options: of the source.
        folder: folder with the files that it has fetched.
        dataset: what it has read.
    """

    name: str
    source_class: type[Source]
    options: Settings
    folder: Path
    dataset: Dataset


def check(name: str, source_class: type[Source], options: Settings, path: Path) -> Iterator[Line]:
    """Yield the outcome of every check; if the source cannot be read at all, none of those that need its data.

    Args:
        name: of the source, for its declarations.
        source_class: class of the source.
        options: its options.
        path: its source file, for messages.
    """
    yield check_options("options", type(options), path)
    if lacking := ", ".join(sorted(source_class.__abstractmethods__)):
        yield Line("read", FAILS, f"{source_class.__name__} lacks {lacking}", f"define it in {path}; docs/contracts/source.md says what it returns")  # fmt: skip
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            with explaining([path]):
                source = source_class(options)
                source.fetch(folder)
                dataset = source.read(folder)
                counts = sharding.check_counts(dataset)
        except UserError as error:
            yield Line("read", FAILS, error.message, error.remedy or f"correct `read` in {path}")
            return
        listed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        yield Line("read", OK, f"{listed}, in fields {', '.join(sorted(dataset.rows))}")
        read = Read(name, source_class, options, folder, dataset)
        yield from run_checks(CHECKS, read, path, f"correct `read` in {path}")


def _arrays(dataset: Dataset) -> dict[str, RowArray]:
    parts: Mapping[str, Mapping[str, Any]] = {"rows": dataset.rows, "test_rows": dataset.test_rows}
    return {f"{part}/{field}": values for part, fields in parts.items() for field, values in fields.items()}


def check_values(name: str, read: Read) -> Line:
    """Check that every value is finite, and that every code has a level, block by block."""
    for part, fields in (("rows", read.dataset.rows), ("test_rows", read.dataset.test_rows)):
        for field, values in fields.items():
            for start in range(0, values.shape[0], _BLOCK_ROWS):
                block = np.asarray(values[start : start + _BLOCK_ROWS])
                sharding.check_values(f"{part}/{field}", start, block, read.dataset.variables.get(field))
    return Line(name, OK, "every value is finite, and every code that of a level")


def check_ranges(name: str, read: Read) -> Line:
    """Check that ranges of rows agree with the whole; fields that are read from files must ensure this."""
    for field, values in _arrays(read.dataset).items():
        middle, end = values.shape[0] // 2, values.shape[0]
        parts = [np.asarray(values[:middle]), np.asarray(values[middle:end])]
        if sum(map(len, parts)) != end or {part.dtype for part in parts} != {np.dtype(values.dtype)}:
            return Line(name, FAILS, f"{field}: two ranges of rows do not make the whole", "return the rows start to stop - 1, in the declared dtype")  # fmt: skip
    return Line(name, OK, "ranges of rows have the declared shapes and dtypes")


def check_again(name: str, read: Read) -> Line:
    """Check that the same options give the same data."""
    again = read.source_class(read.options).read(read.folder)
    one, other = (fingerprint_data(_arrays(each), {}) for each in (read.dataset, again))
    if one != other:
        return Line(name, FAILS, "read twice, the data differ", "take random numbers from a generator with a seed among the options")  # fmt: skip
    return Line(name, OK, "read twice, the data are the same")


def check_constants(name: str, read: Read) -> Line:
    """Check that constants are plain numbers."""
    odd = [key for key, value in read.dataset.constants.items() if type(value) not in (int, float)]
    if odd:
        return Line(name, FAILS, f"'{odd[0]}' is {type(read.dataset.constants[odd[0]]).__name__}", "write float(...) or int(...)")  # fmt: skip
    return Line(name, OK if read.dataset.constants else LEFT_OUT, f"{len(read.dataset.constants)} numbers")


def check_offers(name: str, read: Read) -> Line:
    """Check that the analyses that the source declares to support find what they need."""
    declared = read_offers("source", read.name)
    found = {"averaging": bool(read.dataset.test_rows), "recommendation": read.dataset.kind == "interactions"}
    if declared is None:
        return Line(name, LEFT_OUT, "`offers` is not written out, so analyses are checked when programs are compiled")
    wrong = [word for word, has in found.items() if has != (word in declared)]
    if wrong:
        has = "holds" if found[wrong[0]] else "does not hold"
        needed = {"averaging": "test rows", "recommendation": "a watch matrix"}[wrong[0]]
        fitting = tuple(word for word, has in found.items() if has)
        return Line(name, FAILS, f"`offers` is {declared}, and the dataset {has} {needed}", f"write `offers = {fitting}`")  # fmt: skip
    return Line(name, OK, f"`offers` is {declared}, as the dataset has it")


def check_files(name: str, read: Read) -> Line:
    """Check that the files that the options name exist."""
    named = file_options(read.options)
    if read.source_class.fetch is Source.fetch:
        return Line(name, LEFT_OUT, "the source comes without files")
    if not named:
        return Line(name, LEFT_OUT, "no option of the type Files: changes of files that the source reads are not seen")
    count = sum(len(find_files(patterns, f"data.{key}")) for key, patterns in named.items())
    return Line(name, OK, f"{count:,} files are inputs, and a change of them runs the source again")


def check_words(name: str, read: Read) -> Line:
    """Check the texts that pages show about the source."""
    missing = [w for w, has in (("pretty_name", getattr(read.source_class, "pretty_name", "")), ("a docstring", read.source_class.__doc__)) if not has]  # fmt: skip
    if missing:
        raise ConfigError(f"the class has no {missing[0]}", "write it: pages show it")
    return Line(name, OK, f"pages call it {read.source_class.pretty_name}")


CHECKS: dict[str, Callable[[str, Read], Line]] = {
    "values": check_values,
    "ranges": check_ranges,
    "again": check_again,
    "constants": check_constants,
    "offers": check_offers,
    "files": check_files,
    "words": check_words,
}
"""Name of a check -> the check, in the order in which they run."""
