"""Define the specification of a job: its stage, and the part of the configuration that the stage reads."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, create_model

from bayesmesh.config.blocks import ComputeSettings, PosteriorSettings, SamplingSettings
from bayesmesh.config.declarations import (
    OWN_KEY,
    OWN_VERB,
    AnalysisDeclaration,
    declared,
    key_of,
    read_file_options,
    read_mirror_files,
)
from bayesmesh.config.errors import validate
from bayesmesh.config.experiment import (
    ExperimentBase,
    NamedBlock,
    SourceBlock,
    component_options,
    experiment_class,
    requested,
)
from bayesmesh.config.loading import experiment_file
from bayesmesh.config.registry import component_files, options_class
from bayesmesh.config.settings import NO_SOURCE, Name, Settings, file_options
from bayesmesh.errors import ConfigError
from bayesmesh.files import read_bytes, write_text
from bayesmesh.store.layout import DataLayout, ExperimentLayout
from bayesmesh.store.records.files import InputFiles
from bayesmesh.store.records.sealed import is_altered
from bayesmesh.workflow.flow import (
    ARITHMETIC,
    DOES_NOT_TRIGGER,
    KEYS,
    LATER,
    LEAVES_OUT,
    READS_ONLY,
    analysis_of,
    reads,
    stage_word,
)


class StageSpec(Settings):
    """Specification of one job of a stage; fixed when the workflow is parsed, and written beside the results."""

    stage: str = Field(description="Name of the stage.")
    experiment: Name = Field(description="Name of the experiment.")
    results: str = Field("results", description="Folder of results.")
    config: dict[str, Any] = Field(description="The part of the experiment that the stage reads.")
    num_chains: int = Field(0, ge=0, description="Chains of one program, if the stage runs one.")
    others: dict[Name, dict[str, Any]] = Field(
        {}, description="Other experiments that an analysis reads, with the relevant part of each."
    )

    def of(self, other: str) -> StageSpec:
        """Return the specification for one of the `others`."""
        return StageSpec(stage=self.stage, experiment=other, results=self.results, config=self.others[other])

    @functools.cached_property
    def parts(self) -> Settings:
        """The typed settings of the keys in `config`, as attributes.

        Raises:
            ConfigError: a specification written by hand has an unknown key or an invalid value.
        """
        cls = _class_of(tuple(self.config))
        return validate(Path(f"specification of '{self.stage}'"), cls, self.config, under="config")

    @property
    def file(self) -> Path:
        """The file of the experiment, for messages; shared data have none, but a source."""
        if self.experiment == "data":
            return Path(f"source '{self.config['data']['source']}'")
        return experiment_file(Path("config"), self.experiment)

    def settings(self, key: str) -> Any:
        """Return the typed settings of one top-level key.

        Raises:
            ConfigError: a specification written by hand lacks the key, or is invalid.
        """
        if key not in self.config:
            raise ConfigError(f"specification of '{self.stage}': key 'config.{key}' is missing")
        return getattr(self.parts, key)

    @property
    def data(self) -> SourceBlock:
        """Source, its options and the held-out split."""
        return self.settings("data")

    @property
    def model(self) -> NamedBlock:
        """Name and options of the model."""
        return self.settings("model")

    @property
    def kernel(self) -> NamedBlock:
        """Name and options of the kernel."""
        return self.settings("kernel")

    @property
    def sampling(self) -> SamplingSettings:
        """Chains and draws; defaults for keys that the stage does not read (see `LEAVES_OUT`)."""
        return self.settings("sampling")

    @property
    def compute(self) -> ComputeSettings:
        """Devices, mesh and arithmetic."""
        return self.settings("compute")

    @property
    def posterior(self) -> PosteriorSettings:
        """Limits on quantities stored with the draws."""
        return self.settings("posterior")

    @property
    def word(self) -> str:
        """Name of the stage in file names and in messages."""
        return stage_word(self.stage)

    @property
    def analyses(self) -> list[AnalysisDeclaration]:
        """The analyses whose settings the stage reads."""
        return [declared(name) for name in requested(self.config)]

    @functools.cached_property
    def layout(self) -> ExperimentLayout:
        """Files of the experiment."""
        return ExperimentLayout(Path(self.results), self.experiment)

    @functools.cached_property
    def data_layout(self) -> DataLayout:
        """Files of the dataset; `fetch` has no split."""
        data = self.config["data"]
        split = split_name(data) if "held_out_fraction" in data else ""
        return DataLayout(Path(self.results), dataset_name(data), split)

    def input_files(self) -> InputFiles:
        """Return the files that the source declares that it reads: those of its options, and those of the mirror."""
        source = self.data.source
        given = component_options("source", dict(self.data))
        if ":" in source:
            found = {
                key: (v,) if isinstance(v, str) else tuple(v)
                for key, v in read_file_options(source, given).items()
                if v
            }
        else:
            found = file_options(options_class("source", source).model_validate(given))
        patterns = {f"data.{key}": value for key, value in found.items()}
        return InputFiles(patterns, read_mirror_files(source))

    @property
    def digest(self) -> str:
        """Digest of the settings that make the stage run again when they change."""
        read = {key: value for key, value in triggering(self).items() if key not in ("experiment", "results")}
        return _digest(read, 16)

    def canonical(self) -> str:
        """Return the spec as one line of JSON with sorted keys."""
        # Leave out empty `others`, so that specifications from before this field stay the same.
        value = self.model_dump(mode="json", exclude=None if self.others else {"others"})
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


@functools.cache
def _class_of(keys: tuple[str, ...]) -> type[Settings]:
    """Return a settings class with some of the top-level keys of an experiment."""
    fields = experiment_class().model_fields
    return create_model(
        "Part",
        __base__=Settings,
        __cls_kwargs__=NO_SOURCE,
        **{k: (fields[k].annotation, fields[k]) for k in keys if k in fields},
    )  # type: ignore[call-overload]  # fields by computed names


def stage_config(stage: str, experiment: ExperimentBase) -> dict[str, Any]:
    """Return the part of an experiment that a stage reads, as plain JSON values."""
    read: dict[str, Any] = dict.fromkeys(reads(stage), True) | READS_ONLY.get(stage, {})
    if (analysis := analysis_of(stage)) is not None:
        read |= {"compute": ARITHMETIC} | ({OWN_KEY: {analysis.name}} if analysis.is_own else {})
    if stage == "report":
        # The page gets only the requested analyses, so that a new one changes no other page.
        asked = {key_of(name).partition(".")[0] for name in experiment.requested_analyses()}
        read = {key: True for key in read if key in asked or key not in (OWN_KEY, *LATER.values())}
    if stage == "sample" and experiment.sampling.stop is not None:
        # The rule monitors the summaries that the gates assess.
        read["posterior"] = {"probe_rows"}
    return experiment.model_dump(mode="json", include=read, exclude=LEAVES_OUT.get(stage))


def make_spec(
    stage: str,
    name: str,
    experiment: ExperimentBase,
    results: str,
    experiments: Mapping[str, ExperimentBase] | None = None,
) -> StageSpec:
    """Return the specification of a job of a stage.

    Args:
        stage: one of `stages_of` the experiment.
        name: name of the experiment; not part of `fetch` and `shard`, because experiments share data.
        experiment: its settings.
        results: folder of results.
        experiments: all experiments, including those named in the settings of an analysis.
    """
    num_chains = experiment.sampling.chains_per_group if stage in ("compile", "sample") else 0
    analysis = analysis_of(stage)
    others = {
        other: {k: v for k, v in stage_config(stage, (experiments or {})[other]).items() if k != reads(stage)[-1]}
        for other in (experiment.named_experiments(analysis.name) if analysis else ())
    }
    config, owner = stage_config(stage, experiment), "data" if stage in ("fetch", "shard") else name
    return StageSpec(
        stage=stage, experiment=owner, results=results, config=config, num_chains=num_chains, others=others
    )


def triggering(spec: StageSpec) -> dict[str, Any]:
    """Return the content of a specification without the keys that do not make the stage run again."""
    content: dict[str, Any] = json.loads(spec.canonical())
    for key in DOES_NOT_TRIGGER.get(spec.stage, ()):
        block, name = key.split(".")
        content["config"].get(block, {}).pop(name, None)
    return content


def later_stages(experiment: ExperimentBase) -> list[str]:
    """Return the stages for which `compile` checks data and model.

    These are its analyses, `assemble`, and `sample` with a stopping rule.
    """
    asked = [*(declared(name).stage for name in experiment.requested_analyses()), "assemble"]
    return ["sample", *asked] if experiment.sampling.stop is not None else asked


def component_sources(spec: StageSpec) -> list[Path]:
    """Return the source files of the components that a specification names, also for other experiments."""
    files = []
    for config in (spec.config, *spec.others.values()):
        for kind, key in KEYS.items():
            files += component_files(kind, config[key]) if key in config else []
        for path in (declared(name).path for name in requested(config)):
            files += path.parent.glob("*.py") if path.stem == "analysis" else [path]
    return files


def _digest(value: object, length: int = 8) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:length]


def dataset_name(data: Mapping[str, object]) -> str:
    """Return the folder name of a dataset: its source and a digest of the source's options."""
    source, options = str(data["source"]), component_options("source", data)
    if ":" not in source:
        return f"{source}-{_digest(options)}"
    # A Python name may contain characters that the folder of a dataset may not.
    readable = re.sub(r"[^a-z0-9]+", "-", source.partition(":")[2].lower()).strip("-") or "source"
    return f"{readable}-{_digest([source, options])}"


def split_name(data: Mapping[str, object]) -> str:
    """Return the folder name of a split: readable, with a digest of what defines it."""
    if data.get("left_out"):
        whole = split_name({**data, "left_out": None})
        return f"left-out-{_digest([whole, data['left_out']])}"
    fraction = data["held_out_fraction"]
    if not fraction:
        return "all"
    if data.get("held_out_users"):
        return f"held-out-{_digest([fraction, data['split_seed'], 'users', data['held_out_users']])}"
    chosen_by = [data[key] for key in ("held_out_groups", "held_out_last") if data.get(key) is not None]
    if chosen_by:
        return f"held-out-{_digest([fraction, data['split_seed'], data.get('held_out_groups'), *chosen_by])}"
    return f"held-out-{_digest([fraction, data['split_seed']])}"


def spec_file(spec: StageSpec) -> tuple[Path, str]:
    """Return the file of a specification, whose name holds a digest of its text, and the text."""
    layout, text = spec.layout, spec.canonical() + "\n"
    if spec.stage in ("fetch", "shard"):
        layout = ExperimentLayout(Path(spec.results) / "data", dataset_name(spec.config["data"]))
    return layout.spec(f"{spec.word}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"), text


def write_spec(spec: StageSpec) -> Path:
    """Write the file of a specification, unless it is there unaltered, and return it."""
    path, text = spec_file(spec)
    if not (path.is_file() and path.read_bytes() == text.encode()):
        write_text(path, text)
    return path


def parse_spec(text: str, *expected_stages: str, option: str = "--spec") -> StageSpec:
    """Read a spec from JSON text or from the file that the text names, and resolve its settings.

    Args:
        text: the JSON, or the name of the file.
        expected_stages: stages that are allowed; `OWN_VERB` stands for every analysis.
        option: the command line option, for messages.

    Raises:
        ConfigError: the text is not a spec, or is one of another stage; the message names the command line option.
    """
    origin, content = "the given JSON", text.encode()
    if not text.lstrip().startswith("{"):
        origin = text
        try:
            content = read_bytes(Path(text))
        except OSError as error:
            raise ConfigError(f"{option} {origin}: cannot be read: {error.strerror}") from error
        if is_altered(Path(text), content):
            raise ConfigError(
                f"{option} {origin}: has been altered, as its name tells",
                "run snakemake, which writes it again; for other settings, edit the experiment's file, or copy this one"
                " elsewhere",
            )
    try:
        spec = StageSpec.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ConfigError(f"{option} {origin}: is not a stage specification: {where}{first['msg']}") from error
    is_any_analysis = OWN_VERB in expected_stages and analysis_of(spec.stage) is not None
    if spec.stage not in expected_stages and not is_any_analysis:
        raise ConfigError(
            f"{option} {origin}: is a specification of '{spec.stage}', not of '{' or '.join(expected_stages)}'"
        )
    for key in reads(spec.stage):
        if key in spec.config or spec.stage != "report" or key not in (OWN_KEY, *LATER.values()):
            spec.settings(key)
    return spec
