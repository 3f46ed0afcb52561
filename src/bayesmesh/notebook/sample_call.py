"""Carry out a call of `bayesmesh.sample`: describe the experiment, check it, run its stages, open its posterior."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from bayesmesh.config.registry import forget_files
from bayesmesh.errors import ConfigError, UserError, explain_os_error
from bayesmesh.files import write_text
from bayesmesh.notebook.call_settings import WHERE, Described, describe
from bayesmesh.notebook.progress import ProgressBar
from bayesmesh.notebook.result import Result, open_result
from bayesmesh.notebook.stages import StageRunner, plan
from bayesmesh.store.layout import ExperimentLayout, NotebookLayout


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
        experiment = described.check()
        stages = plan(described.name, experiment, results)
        _write_settings(layout, described)
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


def _write_settings(layout: ExperimentLayout, described: Described) -> None:
    """Write the settings as the workflow would read them."""
    text = yaml.safe_dump(described.values, sort_keys=False, allow_unicode=True)
    write_text(
        layout.settings,
        f"# Written by bayesmesh.sample. As config/experiments/NAME.yaml, the workflow runs it.\n{text}",
    )
