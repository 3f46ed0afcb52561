"""Define a job: its stage, the part of the configuration that the stage reads, and the files that it reads and writes."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
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
from bayesmesh.config.registry import BLOCKS, component_files
from bayesmesh.config.settings import NO_SOURCE, Name, Settings, file_options
from bayesmesh.errors import ConfigError
from bayesmesh.files import read_bytes, write_text
from bayesmesh.store.layout import DataLayout, ExperimentLayout, SweepLayout, group_name
from bayesmesh.store.records.checked import is_altered
from bayesmesh.store.records.files import InputFiles
from bayesmesh.store.records.jobs import record_file
from bayesmesh.workflow.flow import (
    ARITHMETIC,
    DOES_NOT_TRIGGER,
    LATER,
    LEAVES_OUT,
    READS_ONLY,
    analysis_of,
    reads,
    stage_word,
)

ASIDE = ".aside"
"""What is added to the name of a record that is set aside, see `bayesmesh.workflow.reruns`."""


class Job(Settings):
    """One job of a stage: its settings, fixed when the workflow is parsed, and the files that it reads and writes.

    Its fields are its specification, which is written beside the results and which the job's process reads back; the stages
    ``comparison`` and ``index``, of pages of several experiments, have files only.
    """

    stage: str = Field(description="Name of the stage.")
    experiment: Name = Field(description="Name of the experiment.")
    results: Path = Field(Path("results"), description="Folder of results.")
    config: dict[str, Any] = Field(description="The part of the experiment that the stage reads.")
    num_chains: int = Field(0, ge=0, description="Chains of one program, if the stage runs one.")
    others: dict[Name, dict[str, Any]] = Field(
        {}, description="Other experiments that an analysis reads, with the relevant part of each."
    )
    relative: str = Field("", description="Experiment whose chains these continue; empty if there is none.")
    group: str = Field("", exclude=True, description="Chain group of the job; the groups share one specification.")

    def of(self, other: str) -> Job:
        """Return the same for one of the `others`."""
        return Job(stage=self.stage, experiment=other, results=self.results, config=self.others[other])

    def of_group(self, group: str) -> Job:
        """Return the job of one chain group; this one for an empty name."""
        return Job.model_validate({**self.model_dump(), "group": group}) if group else self

    def of_groups(self) -> list[Job]:
        """Return the jobs of all chain groups; of a stage other than `sample`, this job."""
        if self.stage != "sample":
            return [self]
        return [self.of_group(group_name(number)) for number in range(self.config["sampling"]["chain_groups"])]

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
        return ExperimentLayout(self.results, self.experiment)

    @property
    def relative_layout(self) -> ExperimentLayout:
        """Files of the experiment whose chains these continue."""
        return ExperimentLayout(self.results, self.relative)

    @functools.cached_property
    def data_layout(self) -> DataLayout:
        """Files of the dataset; `fetch` has no split."""
        data = self.config["data"]
        split = split_name(data) if "held_out_fraction" in data else ""
        return DataLayout(self.results, dataset_name(data), split)

    @property
    def name(self) -> str:
        """Name of the job among those of its owner, such as ``diagnose`` or ``sample-group-000``."""
        return f"{self.stage}-{self.group}" if self.group else self.word

    @functools.cached_property
    def owner(self) -> str:
        """Folder of the job's record: the experiment, the sweep, or the dataset and its split; empty for the index."""
        if self.stage in ("fetch", "shard"):
            return self.declared.parent.relative_to(self.results).as_posix()
        return "" if self.stage == "index" else self.experiment

    @functools.cached_property
    def outputs(self) -> tuple[Path, ...]:
        """Files and folders that it writes, beginning with the one by which Snakemake knows the job."""
        match self.stage:
            case "fetch" | "shard":
                return data_outputs(self.data_layout)[self.stage]
            case "index":
                return (self.results / "index.html",)
            case "comparison":
                sweep = SweepLayout(self.results, self.experiment)
                return sweep.table, sweep.page
        analysis = analysis_of(self.stage)
        return experiment_outputs(self.layout, [self.group], [analysis] if analysis else [])[self.name]

    @property
    def declared(self) -> Path:
        """The output by which Snakemake knows the job."""
        return self.outputs[0]

    @functools.cached_property
    def inputs(self) -> tuple[Path, ...]:
        """Results of other jobs that it reads."""
        if (analysis := analysis_of(self.stage)) is not None:
            jobs = (self, *map(self.of, self.others))
            return tuple(file for each in jobs for file in read_by_analysis(each, analysis))
        match self.stage:
            case "fetch" | "index" | "comparison":
                return ()
            case "diagnose":
                return (self.layout.posterior,)
            case "shard":
                return (self.data_layout.fetched,)
            case "compile":
                return (self.data_layout.sharded,)
            case "sample":
                of_relative = [self.relative_layout.sampled(group_name(0))] if self.relative else []
                return (self.data_layout.sharded, self.layout.audit, *of_relative)
        sharded, layout = self.data_layout.sharded, self.layout
        manifests = tuple(layout.sampled(group_name(g)) for g in range(self.sampling.chain_groups))
        if self.stage == "assemble":
            return (*manifests, sharded)
        tables = (file for each in self.analyses for file in each.files(layout.folder).values())
        return (sharded, layout.audit, *manifests, layout.posterior, layout.summary, layout.verdict, *tables)

    @functools.cached_property
    def files(self) -> InputFiles:
        """Files of the user that it reads."""
        return self.input_files() if self.stage == "fetch" else InputFiles({})

    @functools.cached_property
    def record(self) -> Path:
        """The record of the job's last run."""
        return record_file(self.results, self.owner, self.name)

    @property
    def aside(self) -> Path:
        """The same while the job is to run again."""
        return self.record.with_name(f"{self.record.name}{ASIDE}")

    @property
    def log(self) -> Path:
        """The output of its last attempt."""
        return self.results / self.owner / "logs" / f"{self.name}.log"

    @property
    def is_sampling(self) -> bool:
        """Whether it extends chains, which have locks and markers of their own."""
        return self.stage == "sample"

    @property
    def lock(self) -> Path:
        """The lock that the job holds while it runs."""
        return self.record.with_name(f".{self.name}.lock")

    def input_files(self) -> InputFiles:
        """Return the files that the source declares that it reads: those of its options, and those of the mirror."""
        source = self.data.source
        if ":" in source:
            given = read_file_options(source, component_options("source", dict(self.data)))
            named = {key: (v,) if isinstance(v, str) else tuple(v) for key, v in given.items() if v}
        else:
            named = file_options(self.data)
        return InputFiles({f"data.{key}": value for key, value in named.items()}, read_mirror_files(source))

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the settings that make the stage run again when they change."""
        content: dict[str, Any] = json.loads(self.canonical())
        for key in DOES_NOT_TRIGGER.get(self.stage, ()):
            block, name = key.split(".")
            content["config"].get(block, {}).pop(name, None)
        return _digest({key: value for key, value in content.items() if key not in ("experiment", "results")}, 16)

    def canonical(self) -> str:
        """Return the spec as one line of JSON with sorted keys."""
        # Leave out empty fields, so that specifications from before these fields stay the same.
        empty = {name for name in ("others", "relative") if not getattr(self, name)}
        value = self.model_dump(mode="json", exclude=empty)
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


def data_outputs(data: DataLayout) -> dict[str, tuple[Path, ...]]:
    """Return job -> files and folders that it writes, beginning with the one by which Snakemake knows the job."""
    return {
        "fetch": (data.fetched, data.records),
        "shard": (data.sharded, data.shards, data.shards.with_suffix(".sha256")),
    }


def experiment_outputs(
    layout: ExperimentLayout, groups: Iterable[str] = (), analyses: Iterable[AnalysisDeclaration] = ()
) -> dict[str, tuple[Path, ...]]:
    """Return the same for an experiment with these chain groups and analyses."""
    return {
        "compile": (layout.audit,),
        **{f"sample-{group}": (layout.sampled(group),) for group in groups},
        "assemble": (layout.posterior_hashes, layout.posterior),
        "diagnose": (layout.summary, layout.verdict, layout.verdicts, layout.efficiency),
        **{each.verb: tuple(each.files(layout.folder).values()) for each in analyses},
        "report": (layout.page, layout.ledger),
    }


def read_by_analysis(job: Job, analysis: AnalysisDeclaration) -> list[Path]:
    """Return the files of an experiment that an analysis reads by `Analysis.reads`; of a refit, also the verdict."""
    is_refit = bool(job.config.get("data", {}).get("left_out"))
    words = list(dict.fromkeys([*analysis.reads, *(["verdict"] if is_refit else [])]))
    return job.layout.read_by(words, job.data_layout if "data" in words else None)


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
    if stage == "assemble" and getattr(experiment.analysis_settings("predictive_checks"), "prior", False):
        # Draws of the prior are groups of the posterior.
        read["predictive_checks"] = {"prior", "draws"}
    config = experiment.model_dump(mode="json", include=read, exclude=LEAVES_OUT.get(stage))
    # The job names its relative itself, as the whole configuration determines it.
    config.get("sampling", {}).get("initial", {}).pop("relative", None)
    return config


def make_job(
    stage: str,
    name: str,
    experiment: ExperimentBase,
    results: Path | str,
    experiments: Mapping[str, ExperimentBase] | None = None,
) -> Job:
    """Return the specification of a job of a stage.

    Args:
        stage: one of `stages_of` the experiment.
        name: name of the experiment; not part of `fetch` and `shard`, because experiments share data.
        experiment: its settings.
        results: folder of results.
        experiments: all experiments, including those named in the settings of an analysis.
    """
    is_program = stage in ("compile", "sample")
    analysis = analysis_of(stage)
    others = {
        other: {k: v for k, v in stage_config(stage, (experiments or {})[other]).items() if k != reads(stage)[-1]}
        for other in (experiment.named_experiments(analysis.name) if analysis else ())
    }
    config, owner = stage_config(stage, experiment), "data" if stage in ("fetch", "shard") else name
    return Job(
        stage=stage, experiment=owner, results=Path(results), config=config, others=others,
        num_chains=experiment.sampling.chains_per_group if is_program else 0,
        relative=experiment.relative if is_program else "",
    )  # fmt: skip


def later_stages(experiment: ExperimentBase) -> list[str]:
    """Return the stages for which `compile` checks data and model.

    These are its analyses, `assemble`, and `sample` with a stopping rule.
    """
    asked = [*(declared(name).stage for name in experiment.requested_analyses()), "assemble"]
    return ["sample", *asked] if experiment.sampling.stop is not None else asked


def component_sources(job: Job) -> list[Path]:
    """Return the source files of the components that a specification names, also for other experiments."""
    files = []
    for config in (job.config, *job.others.values()):
        for kind, (key, _) in BLOCKS.items():
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


def spec_file(job: Job) -> tuple[Path, str]:
    """Return the file of a specification, whose name holds a digest of its text, and the text."""
    layout, text = job.layout, job.canonical() + "\n"
    if job.stage in ("fetch", "shard"):
        layout = ExperimentLayout(job.results / "data", dataset_name(job.config["data"]))
    return layout.spec(f"{job.word}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"), text


def write_spec(job: Job) -> Path:
    """Write the file of a specification, unless it is there unaltered, and return it."""
    path, text = spec_file(job)
    if not (path.is_file() and path.read_bytes() == text.encode()):
        write_text(path, text)
    return path


def parse_spec(text: str, *expected_stages: str, option: str = "--spec") -> Job:
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
                f"{option} {origin}: was altered: its hash does not match its name",
                "run snakemake, which writes it again; for other settings, edit the experiment's file, or copy this one"
                " elsewhere",
            )
    try:
        job = Job.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ConfigError(f"{option} {origin}: not a stage specification: {where}{first['msg']}") from error
    is_any_analysis = OWN_VERB in expected_stages and analysis_of(job.stage) is not None
    if job.stage not in expected_stages and not is_any_analysis:
        raise ConfigError(
            f"{option} {origin}: is a specification of '{job.stage}', not of '{' or '.join(expected_stages)}'"
        )
    for key in reads(job.stage):
        if key in job.config or job.stage != "report" or key not in (OWN_KEY, *LATER.values()):
            job.settings(key)
    return job
