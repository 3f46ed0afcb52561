"""Carry out a call of `bayesmesh.sample`: turn its arguments into the settings of an experiment, run its stages, open its posterior."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bayesmesh.config.checks import check_experiment, check_name
from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import PACKAGES, component_path, forget_files, list_components
from bayesmesh.config.settings import Settings
from bayesmesh.config.source_code import PACKAGE, syntax_digest
from bayesmesh.errors import ConfigError, UserError, explain_os_error, suggest
from bayesmesh.files import write_text
from bayesmesh.notebook.cell_code import CellCode, Definition, is_of_cell
from bayesmesh.notebook.data import data_settings
from bayesmesh.notebook.result import Result, open_result
from bayesmesh.notebook.stages import ProgressBar, StageRunner, plan
from bayesmesh.store.layout import ExperimentLayout, NotebookLayout

WHERE = Path("bayesmesh.sample")
"""Takes the place of an experiment's file in messages."""

_SHORT = ("draws", "chains", "warmup", "seed")
"""Keys of ``sampling`` that are separate arguments."""

_OTHERS = frozenset({*_SHORT, "cores", "name", "progress", "results"})
"""Arguments that are not top-level keys of an experiment."""

_CELLS = "cells_"
"""Prefix of the name of the module with the code of cells, before the experiment's name."""


class Described(NamedTuple):
    """An experiment described in Python.

    Attributes:
        name: its name.
        values: its settings, as its file would hold them.
        code: text of the module to which `values` refer; empty if there is none.
    """

    name: str
    values: dict[str, object]
    code: str

    @property
    def module(self) -> str:
        """Name of the module with the code of cells."""
        return module_name(self.name)


def module_name(experiment: str) -> str:
    """Return the name of the module with the code of cells for an experiment.

    >>> module_name("eight_schools"), module_name("eight-schools")
    ('cells_eight_schools', 'cells_eight_schools_2bec')
    """
    word = experiment.replace("-", "_")
    # So that names that differ only in dashes have separate modules.
    digest = f"_{hashlib.sha256(experiment.encode()).hexdigest()[:4]}" if word != experiment else ""
    return f"{_CELLS}{word}{digest}"


def describe(
    model: object, data: object, kernel: object, name: str | None, results: Path, blocks: Mapping[str, object]
) -> Described:
    """Return the settings of a call.

    Args:
        model: name, settings, class, instance or function.
        data: see `data_settings`.
        kernel: name, settings, class or instance.
        name: name of the experiment; if not given, one is derived from the settings.
        results: folder of results; tables and arrays are written below it.
        blocks: other top-level keys, and keys of ``sampling`` that are arguments.

    Raises:
        ConfigError: a name is not valid, or the source of a class or a function is not available.
        DataError: a table or an array cannot be stored.
    """
    cells = CellCode()
    if blocks.get("sweep") is not None:
        raise ConfigError(
            f"{WHERE}: key 'sweep': a call samples one experiment",
            "call in a loop, with a name for each; or write config/experiments/NAME.yaml and run Snakemake",
        )
    written = _blocks(blocks)
    written |= {
        "data": data_settings(data, NotebookLayout(results).inputs),
        "model": _component("model", model),
        "kernel": _component("kernel", kernel),
    }
    found = {key: _plain(value, key, cells) for key, value in written.items()}
    if name is None:
        name = _default_name(found, cells.text)
    check_name(WHERE, name)
    values = {"title": name, **found}
    return Described(name, _with_module(values, module_name(name)), cells.text)


def _blocks(blocks: Mapping[str, object]) -> dict[str, object]:
    """Return the top-level keys of an experiment, with the arguments of ``sampling`` moved into that block."""
    short = {key: blocks[key] for key in _SHORT if blocks.get(key) is not None}
    written = {key: value for key, value in blocks.items() if key not in _SHORT and value is not None}
    valid = (experiment_class().model_fields.keys() - {"sweep"}) | _OTHERS
    for key in written.keys() - valid:
        raise ConfigError(f"{WHERE}: unknown key '{key}'", suggest(key, valid))
    sampling = written.get("sampling", {})
    if not isinstance(sampling, Mapping):
        return written
    for key in short.keys() & sampling.keys():
        raise ConfigError(f"{WHERE}: '{key}' is given twice, as an argument and in 'sampling'", "keep one of them")
    return {**written, "sampling": {**sampling, **short}}


def _component(kind: str, given: object) -> object:
    """Return the block of a model or a kernel."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str | type):
        return {"name": given}
    if isinstance(options := getattr(given, "options", None), Settings):
        values = options.model_dump(mode="json", exclude_unset=True)
        name = _name_of_class(type(given))
        return {"name": type(given), **({"options": values} if name is None else values)}
    if kind == "model" and callable(given):
        return _function_model(given)
    raise ConfigError(
        f"{WHERE}: key '{kind}': {type(given).__name__} is not a {kind}",
        f"give a name, a mapping with the key 'name', or a class that derives from bayesmesh's {kind.capitalize()}",
    )


def _function_model(function: Callable[..., object]) -> dict[str, object]:
    """Return the block of a model given as a function, which takes only the data and returns a PyMC model."""
    if len(inspect.signature(function).parameters) == 1:
        return {"name": "pymc", "function": function}
    raise ConfigError(
        f"{WHERE}: key 'model': a log density needs a prior or a test point beside the function",
        'for example {"name": "log_density", "function": log_density, "prior": {"mean": "normal(0, 1)"}}',
    )


def _plain(value: object, key: str, cells: CellCode) -> object:
    """Return a value as JSON can hold it; a class or a function becomes its name.

    Raises:
        ConfigError: JSON cannot hold the value; the message names the key.
    """
    if isinstance(value, Mapping):
        # A class as a key is an analysis.
        named = {_name_of(k, key, cells) if isinstance(k, type) else str(k): v for k, v in value.items()}
        return {name: _plain(v, f"{key}.{name}", cells) for name, v in named.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{key}[{number}]", cells) for number, each in enumerate(value)]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Settings):
        return value.model_dump(mode="json", exclude_unset=True)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _plain(value.item(), key, cells)
    if isinstance(value, type) or callable(value):
        return _name_of(value, key, cells)
    raise ConfigError(
        f"{WHERE}: key '{key}': {type(value).__name__} is not a value of a configuration",
        "give numbers, texts, lists and mappings of them; arrays and tables belong to `data`",
    )


def _name_of(value: Definition, key: str, cells: CellCode) -> str:
    """Return the name of a component, ``module:attribute`` in the user's own code, or the same in the cells."""
    if isinstance(value, type) and (built_in := _name_of_class(value)):
        return built_in
    try:
        if is_of_cell(value):
            return f"{_CELLS}:{cells.add(value)}"
    except ConfigError as error:
        raise ConfigError(f"{WHERE}: key '{key}': {error.message}", error.remedy) from error
    module, attribute = _place_of(value)
    if module == "__main__" or not attribute.isidentifier():
        raise ConfigError(f"{WHERE}: key '{key}': {attribute or value} has no name in a module", "define it at the top level of a module")  # fmt: skip
    return f"{module}:{attribute}"


def _place_of(value: Definition) -> tuple[str, str]:
    """Return module and name of a function or class, also of an object that decorates a function, such as a handler of NumPyro."""
    if name := getattr(value, "__qualname__", ""):
        return value.__module__, name
    inner: Any = value
    while not hasattr(inner, "__qualname__") and inner is not None:
        inner = getattr(inner, "__wrapped__", getattr(inner, "fn", None))
    if inner is None:
        return "", ""
    names = vars(importlib.import_module(inner.__module__)).items()
    return inner.__module__, next((name for name, each in names if each is value), "")


def _name_of_class(cls: type) -> str | None:
    """Return the name of a component of this package; None for another class."""
    for kind in PACKAGES if cls.__module__.startswith(f"{PACKAGE}.") else ():
        for name in list_components(kind):
            relative = component_path(kind, name).with_suffix("").parts
            if cls.__module__.split(".")[-2:] == list(relative[-2:]):
                return name
    return None


def _default_name(values: Mapping[str, object], code: str) -> str:
    """Return a name made from the model and a digest of all that determines the draws; more draws extend the chains."""
    decisive = {key: values.get(key) for key in ("data", "model", "kernel", "compute")}
    sampling = values.get("sampling")
    if isinstance(sampling, Mapping):
        decisive["sampling"] = {key: value for key, value in sampling.items() if key not in ("draws", "stop")}
    syntax = syntax_digest(ast.parse(code))
    digest = hashlib.sha256(json.dumps([decisive, syntax], sort_keys=True).encode()).hexdigest()[:8]
    model = values.get("model")
    name = str(model.get("name", "")) if isinstance(model, Mapping) else ""
    word = re.sub(r"[^a-z0-9]+", "_", name.rpartition(":")[2].lower()).strip("_")
    return f"{word[:50] or 'model'}-{digest}"


def _with_module(value: object, module: str) -> dict[str, object]:
    """Return settings in which the code of cells is referred to by the name of its module."""
    text = json.dumps(value)
    found: dict[str, object] = json.loads(text.replace(f'"{_CELLS}:', f'"{module}:'))
    return found


def run_call(
    model: object, data: object, kernel: object, name: str | None, results: Path, blocks: Mapping[str, object],
    cores: int | None, *, is_shown: bool,
) -> Result:  # fmt: skip
    """Sample, and return the posterior; see `bayesmesh.sample` for the arguments.

    Args:
        blocks: top-level keys of the experiment, and keys of ``sampling`` that are arguments.

    Raises:
        UserError: see `bayesmesh.sample`.
    """
    try:
        return _run(describe(model, data, kernel, name, results, blocks), results, cores, is_shown=is_shown)
    except UserError as error:
        # Raised without the frames of this package.
        raise error.with_traceback(None) from None
    except (OSError, MemoryError) as error:
        if explained := explain_os_error(error):
            raise explained from None
        raise


def _run(described: Described, results: Path, cores: int | None, *, is_shown: bool) -> Result:
    """Run the stages of an experiment and open its posterior."""
    layout = ExperimentLayout(results, described.name)
    _refuse_name_of_project(described.name, results)
    code = NotebookLayout(results).code.absolute()
    if described.code:
        write_text(code / described.module / "__init__.py", described.code)
    with _importable(code):
        # Files may have been edited since the last call.
        forget_files()
        experiment = check_experiment(WHERE, described.values)
        stages = plan(described.name, experiment, results)
        text = yaml.safe_dump(described.values, sort_keys=False, allow_unicode=True)
        about = "# Written by bayesmesh.sample. As config/experiments/NAME.yaml, the workflow runs it."
        write_text(layout.settings, f"{about}\n{text}")
        with ProgressBar(len(stages), is_shown=is_shown) as bar:
            StageRunner(experiment, cores, [str(code)], bar).run(described.name, stages)
    return open_result(layout)


def _refuse_name_of_project(name: str, results: Path) -> None:
    """Refuse the name of one of the project's experiments, whose results would be replaced."""
    file = Path("config", "experiments", f"{name}.yaml")
    if file.exists() and results.absolute() == Path("results").absolute():
        raise ConfigError(
            f"{WHERE}: name '{name}' belongs to {file}, whose results are in {results}", "choose another name"
        )


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Put the code of cells on the Python path, where planning looks for it; last, so that it hides nothing."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
