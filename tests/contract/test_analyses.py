"""Every analysis keeps docs/contracts/analysis.md: a new one is tested unasked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.cli import VERBS
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared, list_analyses, read_offers
from bayesmesh.config.experiment import RESERVED_NAMES, ExperimentBase
from bayesmesh.config.registry import component_path, list_components, load_component, read_options, resolve_component
from bayesmesh.data.base import Source
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.figures.sections import Section
from bayesmesh.planning.specs import STAGES
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout

NAMES = list_components("analysis")
OTHER = "another"
FOLDERS_OF_STAGES = {"chains", "program", "diagnostics", "specs", "ledger", "logs", "benchmarks", "posterior.zarr"}

pytestmark = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> Any:
    """An analysis with default settings, which names one other experiment where it names any."""
    settings = {"experiments": [OTHER]} if declared(name).names_others else {}
    cls, options = resolve_component("analysis", name, settings)
    return cls(options)


def first_offering(kind: str, words: tuple[str, ...]) -> str:
    """The first source or model that offers all words; one that comes without files, or the plainest for no words."""
    fitting = [n for n in list_components(kind) if set(words) <= set(read_offers(kind, n) or ())]
    if not words:
        return "gaussian"
    return next(n for n in fitting if kind == "model" or load_component(kind, n).fetch is Source.fetch)


def subject(name: str, folder: Path, experiment: str, seed: int) -> Subject:
    """An experiment with small data and a posterior of draws from the prior: two chains of three."""
    jax.config.update("jax_enable_x64", True)
    analysis, data, layout = declared(name), DataLayout(folder, "data", "all"), ExperimentLayout(folder, experiment)
    if not data.sharded.exists():
        source, options = resolve_component("source", first_offering("source", analysis.needs_of_source), {})
        kind = "held-out" if source(options).read(folder).kind == "interactions" else ""
        shard(source(options).read(folder), DataSettings(held_out_fraction=0.2 if kind else 0.0), data)
    shards = Shards(data.shards)
    model_class, options = resolve_component("model", first_offering("model", analysis.needs_of_model), {})
    model = model_class(options, shards.spec("float32"))
    draws = model.prior(shards.spec("float32")).sample((2, 3), seed=jax.random.key(seed))
    group = open_group(layout.posterior, "w").create_group("posterior")
    for latent, values in draws.items():
        dims = (CHAIN, DRAW, *(f"{latent}_dim_{axis}" for axis in range(values.ndim - 2)))
        write_array(group, latent, np.asarray(values), dims)
    write_hashes(layout.posterior, {})
    return Subject(layout, lambda: BoundModel(model, shards.spec("float32"), shards))


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
    assert first_offering("source", analysis.needs_of_source)
    assert first_offering("model", analysis.needs_of_model)


def test_its_settings_have_bounds_and_descriptions(name: str) -> None:
    options = read_options(component_path("analysis", name))
    assert options.__doc__
    assert [key for key, field in options.model_fields.items() if not field.description] == []


def test_its_section_needs_no_array_library(name: str, tmp_path: Path) -> None:
    """And there is none without files, nor a cell."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom bayesmesh.config.declarations import declared\n"
        "from bayesmesh.config.registry import resolve_component\n"
        f"analysis = declared({name!r})\n"
        f"settings = {{'experiments': [{OTHER!r}]}} if analysis.names_others else {{}}\n"
        f"cls, options = resolve_component('analysis', {name!r}, settings)\n"
        f"made, files = cls(options), analysis.files(Path({str(tmp_path)!r}))\n"
        "assert made.section(files) is None and made.cell(files) == ''\n"
        "sys.exit(', '.join(sorted({'jax', 'jaxlib', 'tensorflow_probability'} & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_writes_its_outputs_and_nothing_else_and_shows_them(name: str, tmp_path: Path) -> None:
    analysis, made = declared(name), make(name)
    own = subject(name, tmp_path, "own", seed=1)
    others = {OTHER: subject(name, tmp_path, OTHER, seed=2)} if analysis.names_others else {}
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
