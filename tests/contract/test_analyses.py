"""Every analysis keeps docs/contracts/analysis.md: a new one is tested unasked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from bayesmesh.analyses.base import Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.cli import VERBS
from bayesmesh.config.declarations import declared, list_analyses
from bayesmesh.config.experiment import RESERVED_NAMES, ExperimentBase
from bayesmesh.config.refit_settings import Folds, LeftOut
from bayesmesh.config.registry import list_components, load_component, options_class, resolve_component
from bayesmesh.operations.check.posteriors import OTHER, find_offering, make_posterior, named_in, names_others
from bayesmesh.workflow.flow import STAGES

NAMES = list_components("analysis")
FOLDERS_OF_STAGES = {"chains", "program", "diagnostics", "specs", "ledger", "logs", "posterior.zarr"}

pytestmark = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> Any:
    """An analysis with default settings, which names one other experiment where it names any, and has few refits."""
    settings: dict[str, object] = {"experiments": [OTHER]} if names_others(name) else {}
    if issubclass(options_class("analysis", name), Folds):
        settings = {"folds": 2}
    cls, options = resolve_component("analysis", name, settings)
    return cls(options)


def subject(name: str, folder: Path, experiment: str, seed: int, left_out: LeftOut | None = None) -> Subject:
    """An experiment with small data and a posterior of draws from the prior: two chains of three."""
    jax.config.update("jax_enable_x64", True)
    needed = (find_offering(kind, declared(name).needs(kind)) for kind in ("source", "model"))
    reads = declared(name).reads
    layout, *of_data = make_posterior(folder, experiment, *needed, seed=seed, left_out=left_out, reads=reads)
    return Subject(layout, *of_data, reads_posterior="posterior" in reads)


def test_what_it_declares_is_what_its_class_says(name: str) -> None:
    cls, analysis = load_component("analysis", name), declared(name)
    for attribute in (
        "pretty_name",
        "outputs",
        "verb",
        "folder",
        "message",
        "reads",
        "needs_of_source",
        "needs_of_model",
        "checks_model",
    ):
        if hasattr(cls, attribute):
            assert getattr(cls, attribute) == getattr(analysis, attribute)
    assert cls.__doc__
    assert "{experiment}" in analysis.message
    assert len(set(analysis.outputs)) == len(analysis.outputs)


def test_its_names_are_its_own(name: str) -> None:
    analysis, others = declared(name), [each for each in list_analyses() if each.name != name]
    assert name not in {*ExperimentBase.model_fields, "data", "model", "kernel"}
    assert not {analysis.verb, analysis.folder} & {each for o in others for each in (o.verb, o.folder)}
    assert analysis.verb not in VERBS
    assert list(STAGES).count(analysis.verb) == 1
    assert analysis.verb in RESERVED_NAMES
    assert analysis.folder not in FOLDERS_OF_STAGES


def test_some_data_and_some_model_offer_what_it_needs(name: str) -> None:
    analysis = declared(name)
    assert find_offering("source", analysis.needs_of_source)
    assert find_offering("model", analysis.needs_of_model)


def test_its_options_say_what_it_is_for(name: str) -> None:
    assert options_class("analysis", name).__doc__


def shows_without_array_library(name: str, folder: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom bayesmesh.config.declarations import declared\n"
        "from bayesmesh.config.registry import options_class, resolve_component\n"
        f"analysis = declared({name!r})\n"
        f"options = options_class('analysis', {name!r})\n"
        f"settings = {{'experiments': [{OTHER!r}]}} if 'experiments' in options.model_fields else {{}}\n"
        f"cls, options = resolve_component('analysis', {name!r}, settings)\n"
        f"made, files = cls(options), analysis.files(Path({str(folder)!r}))\n"
        "made.section(files), made.cell(files)\n"
        "sys.exit(', '.join(sorted({'jax', 'jaxlib', 'tensorflow_probability'} & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_writes_its_outputs_and_nothing_else_and_shows_them(name: str, tmp_path: Path) -> None:
    analysis, made = declared(name), make(name)
    own = subject(name, tmp_path, "own", seed=1)
    others = {
        other: subject(name, tmp_path, other, 2 + i, left_out)
        for i, (other, left_out) in enumerate(named_in(made.options, analysis).items())
    }
    files = analysis.files(own.layout.folder)
    folder = own.layout.folder / analysis.folder
    folder.mkdir()
    if "data" in analysis.reads:
        model, data_spec, _ = own.bound
        made.check(own.bound, jax.eval_shape(lambda: model.prior(data_spec).sample(seed=jax.random.key(0))))
    for _ in range(2):  # the second run replaces what the first wrote
        assert made.run(own, others, files)
        assert {path.name for path in folder.iterdir()} == set(analysis.outputs)
    section = made.section(files)
    assert section is None or isinstance(section, Section)
    if section is not None:
        assert not re.search(r"<(script|h1|h2)\b", section.body), "the page puts the heading above a section"
    assert isinstance(made.cell(files), str)
    shows_without_array_library(name, own.layout.folder)
