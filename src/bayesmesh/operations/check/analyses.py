"""The checks of an analysis: the requirements of docs/contracts/analysis.md, tested on a posterior."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax

from bayesmesh.analyses.base import Analysis, draw_shapes
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.config.declarations import AnalysisDeclaration
from bayesmesh.config.settings import Settings
from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.files import hash_file
from bayesmesh.operations.check.line import FAILS, LEFT_OUT, OK, Line, check_options, run_checks
from bayesmesh.operations.check.posteriors import (
    BlockedPosterior,
    Checked,
    bytes_per_draw,
    find_checked,
    write_longer,
)

FEW_DRAWS, ADDED_BYTES, LARGEST_DRAW = 16, 2**20, 2**15
"""Draws of the shorter posterior, additional bytes of the longer one, and the largest draw for which this is tried."""

MOST_BYTES = 2**26
"""Bytes of the longest posterior on which memory is watched."""


class Ran(NamedTuple):
    """An analysis that has run twice.

    Attributes:
        checked: the analysis and its experiments.
        files: output -> path.
        said: the line that it returned.
        first: file below the folder of outputs -> digest, after the first run.
        kept: output -> another name of the file that the first run wrote, by which a file is known.
        scratch: folder for other files.
    """

    checked: Checked
    files: dict[str, Path]
    said: object
    first: dict[str, str]
    kept: dict[str, Path]
    scratch: Path

    @property
    def folder(self) -> Path:
        """Folder of the outputs."""
        return next(iter(self.files.values())).parent


def prepare(name: str, experiment: str | None) -> tuple[str, Iterator[Line]]:
    """Return a description of what an analysis is checked on, and the outcomes of the checks; those after a failed run are left out.

    Args:
        name: of the analysis.
        experiment: name of the experiment whose results it reads; see `find_checked`.

    Raises:
        ConfigError: see `find_checked`.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checked = find_checked(name, experiment, folder)
        return f"analysis {name} on {checked.origin}", _check(checked, folder, stack.pop_all())
    raise AssertionError("the folder swallows no error")


def _check(checked: Checked, folder: Path, held: contextlib.ExitStack) -> Iterator[Line]:
    source = checked.declaration.path
    with held:
        yield check_declarations("declarations", checked)
        accepted = check_check("check", checked)
        yield accepted
        if accepted.state != OK and checked.is_built_in and accepted.state != FAILS:
            return
        try:
            with explaining([source], method=checked.analysis_class.run):
                ran = _run_twice(checked, folder / "checked")
        except (UserError, OSError) as error:
            problem = error.message if isinstance(error, UserError) else f"{error.filename}: {error.strerror}"
            yield Line("run", FAILS, problem, getattr(error, "remedy", "") or f"correct `run` in {source}")
            return
        yield from run_checks(CHECKS, ran, source)


def check_declarations(name: str, checked: Checked) -> Line:
    """Check that the class agrees with its source text, and that pages have descriptions of it and its options."""
    declaration, cls = checked.declaration, checked.analysis_class
    for attribute in (each for each in AnalysisDeclaration.model_fields if each not in ("name", "path")):
        declared = getattr(declaration, attribute)
        if getattr(cls, attribute, declared) != declared:
            seen = f"`{attribute}` is {getattr(cls, attribute)!r}, and the text of the class says {declared!r}"
            return Line(name, FAILS, seen, "write it out in the class, and change it nowhere else")
    options: type[Settings] = type(checked.options)
    if not options.__doc__:
        return Line(name, FAILS, "the class Options has no docstring", "write one: the table of keys shows it")
    described = check_options(name, options, declaration.path)
    if described.state == FAILS:
        return described
    outputs = ", ".join(declaration.outputs)
    return Line(name, OK, f"rule {declaration.verb} writes {outputs} into {declaration.folder}/ and reads {', '.join(declaration.reads)}")  # fmt: skip


def check_check(name: str, checked: Checked) -> Line:
    """Check that `check` accepts data and model from shapes alone."""
    if checked.analysis_class.check is Analysis.check:
        return Line(name, OK, "`check` is not written, so all data and models will do")
    shapes = draw_shapes(checked.subject().posterior, "float32")
    latents = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in shapes.items()}
    try:
        with explaining([checked.declaration.path], method=checked.analysis_class.check):
            checked.make().check(checked.bind(), latents)
    except ConfigError as error:
        if error.message.startswith("key ") and checked.is_built_in:
            return Line(name, LEFT_OUT, f"it refuses built-in data: {error.message}", "give an experiment: --experiment NAME")  # fmt: skip
        return Line(name, FAILS, error.message, error.remedy)
    return Line(name, OK, "data and model are accepted, from shapes alone")


def _run_twice(checked: Checked, folder: Path) -> Ran:
    files = checked.declaration.files(folder)
    outputs = next(iter(files.values())).parent
    outputs.mkdir(parents=True)
    said = checked.make().run(checked.subject(), checked.other_subjects(), files)
    first, kept = _digests(outputs), {}
    for output, path in files.items():
        if path.is_file():
            kept[output] = folder / f"kept-{output}"
            os.link(path, kept[output])
    if all(path.exists() for path in files.values()):
        checked.make().run(checked.subject(), checked.other_subjects(), files)
    return Ran(checked, files, said, first, kept, folder)


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def check_outputs(name: str, ran: Ran) -> Line:
    """Check that all outputs were written, and nothing else, and that there is a line for the log."""
    there, declared = {path.name for path in ran.folder.iterdir()}, set(ran.files)
    if missing := sorted(declared - there):
        return Line(name, FAILS, f"{missing[0]} is not written", "let `run` write all of `files`, or remove it from `outputs`")  # fmt: skip
    if more := sorted(there - declared):
        return Line(name, FAILS, f"{more[0]} is written, and not declared", "add it to `outputs`, or write it nowhere")
    if not isinstance(ran.said, str) or not ran.said or "\n" in ran.said:
        return Line(name, FAILS, f"`run` returns {ran.said!r:.60}", "return one line of text for the log")
    return Line(name, OK, f"all of {', '.join(ran.files)}, and nothing else; it says: {ran.said:.80}")


def check_atomic(name: str, ran: Ran) -> Line:
    """Check that an output is replaced, not written in place, because a killed job would leave part of it."""
    for output, kept in ran.kept.items():
        if ran.files[output].exists() and kept.samefile(ran.files[output]):
            return Line(name, FAILS, f"{output} is written in place", "write it with bayesmesh.files: write_text, write_json or atomic_path")  # fmt: skip
    return Line(name, OK, "outputs are replaced as a whole")


def check_again(name: str, ran: Ran) -> Line:
    """Check that the second run wrote the same bytes."""
    again = _digests(ran.folder)
    if differ := sorted(key for key in ran.first.keys() | again if ran.first.get(key) != again.get(key)):
        return Line(name, FAILS, f"run twice, {differ[0]} differs", "draw random numbers from a seed among the options, and write no times")  # fmt: skip
    return Line(name, OK, "run twice, the bytes are the same")


def check_section(name: str, ran: Ran) -> Line:
    """Check that the section is made from the outputs."""
    section = ran.checked.make().section(ran.files)
    if section is not None and not isinstance(section, Section):
        return Line(name, FAILS, f"`section` returns {type(section).__name__}", "return a Section or None")
    if section is not None and (found := re.search(r"<(script|h1|h2)\b", section.body)):
        return Line(name, FAILS, f"the section holds {found[0]}>", "begin with <h3>: the page puts the heading above a section, and runs no scripts")  # fmt: skip
    size = f"{len(section.body):,} characters" if section is not None else "none"
    return Line(name, OK, f"{size}, from the outputs alone")


def check_cell(name: str, ran: Ran) -> Line:
    """Check the text for the index."""
    cell = ran.checked.make().cell(ran.files)
    if not isinstance(cell, str) or "\n" in cell or len(cell) > 200:
        return Line(name, FAILS, f"`cell` returns {cell!r:.80}", "return a few words, such as 'log score -0.31', or an empty text")  # fmt: skip
    return Line(name, OK, f"the index shows '{cell}'" if cell else "the index shows nothing of it")


def check_imports(name: str, ran: Ran) -> Line:
    """Check in another process that page and index are made without JAX."""
    declaration = ran.checked.declaration
    code = (
        "import sys\nfrom pathlib import Path\nfrom bayesmesh.config.declarations import declared\n"
        "from bayesmesh.config.registry import load_component, options_class\n"
        f"found = declared({declaration.name!r})\n"
        f"options = options_class('analysis', found.name).model_validate_json({ran.checked.options.model_dump_json()!r}, strict=False)\n"
        f"made = load_component('analysis', found.name)(options)\n"
        f"files = {{name: Path(path) for name, path in { ({name: str(path) for name, path in ran.files.items()})!r}.items()}}\n"
        "made.section(files), made.cell(files)\n"
        "print(', '.join(sorted({'jax', 'tensorflow_probability'} & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        return Line(name, FAILS, f"in a process of its own: {done.stderr.strip().rpartition(chr(10))[2]:.300}", f"correct {declaration.path}")  # fmt: skip
    if loaded := done.stdout.strip().rpartition("\n")[2]:
        return Line(name, FAILS, f"the class, its section or its cell imports {loaded}", "import it inside of `run` and `check`: the index loads the class")  # fmt: skip
    return Line(name, OK, "the page and the index load it without JAX")


def check_memory(name: str, ran: Ran) -> Line:
    """Check that memory, as Python and NumPy see it, does not grow with the number of draws."""
    checked = ran.checked
    if "posterior" not in checked.declaration.reads:
        return Line(name, LEFT_OUT, "it does not read the draws")
    posterior = checked.subject().posterior
    arrays = [posterior.array("posterior", latent) for latent in posterior.latents]
    per_draw = posterior.num_chains * sum(math.prod(each.shape[2:]) * each.dtype.itemsize for each in arrays)
    if per_draw > LARGEST_DRAW:
        return Line(
            name, LEFT_OUT, f"a draw of all chains has {per_draw:,} bytes: watch the peak in the ledger of its job"
        )
    _peak(ran, FEW_DRAWS)  # a first run also loads modules and fills caches
    counts = FEW_DRAWS, FEW_DRAWS + max(1, ADDED_BYTES // per_draw)
    grown = _growth(ran, counts, per_draw)
    if grown is None:
        return Line(name, OK, f"{counts[1]} draws take no more than {counts[0]}, as Python and NumPy count it")
    # A bound on the draws shows only above the bound, so compare two numbers of draws that no such option exceeds.
    bound, option = max(((v, k) for k, v in checked.options if isinstance(v, int) and "draw" in k), default=(0, ""))
    low = max(2 * counts[1], bound)
    is_small = 2 * low * bytes_per_draw(posterior) <= MOST_BYTES
    if option and not is_small:
        return Line(name, LEFT_OUT, f"{grown}: option '{option}' = {bound} may bound it above this", "lower the option to see")  # fmt: skip
    above = _growth(ran, (low, 2 * low), per_draw) if is_small else grown
    if above is None:
        return Line(name, OK, f"{2 * low} draws take no more than {low}; below, memory grows up to a bound")
    if "data" in checked.declaration.reads:
        # An analysis that works through rows times draws may have a bound that so few draws do not reach.
        return Line(name, LEFT_OUT, f"{above}: if that has a bound, it is above this")
    return Line(name, FAILS, above, "read the draws in blocks and keep sums: `subject.posterior.blocks()`")


def _growth(ran: Ran, counts: tuple[int, int], per_draw: int) -> str | None:
    """Return a message that memory grows between two numbers of draws; None if by at most half the size of the added draws."""
    fewer, more = (_peak(ran, count) for count in counts)
    added = (counts[1] - counts[0]) * per_draw
    if more - fewer <= added / 2:
        return None
    return f"{counts[1]} draws take {(more - fewer) / 2**20:.1f} MiB more than {counts[0]}; the draws have {added / 2**20:.1f} MiB"


def _peak(ran: Ran, num_draws: int) -> int:
    """Return the largest memory of a run on so many draws, in bytes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subject = ran.checked.subject()
        path = write_longer(subject.posterior, folder, num_draws)
        subject.posterior = BlockedPosterior(path)
        files = ran.checked.declaration.files(folder / "outputs")
        next(iter(files.values())).parent.mkdir(parents=True)
        analysis, others = ran.checked.make(), ran.checked.other_subjects()
        tracemalloc.start()
        try:
            analysis.run(subject, others, files)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


CHECKS: dict[str, Callable[[str, Ran], Line]] = {
    "outputs": check_outputs,
    "atomic": check_atomic,
    "again": check_again,
    "section": check_section,
    "cell": check_cell,
    "imports": check_imports,
    "memory": check_memory,
}
"""Name of a check -> the check, in the order in which they run."""
