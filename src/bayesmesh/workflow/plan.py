"""Answer the Snakefile: experiments, their files, and the specification of each job."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from bayesmesh.config.blocks import check_start_file
from bayesmesh.config.declarations import AnalysisDeclaration, declared, list_analyses
from bayesmesh.config.experiment import RESERVED_NAMES, ExperimentBase
from bayesmesh.config.loading import experiment_file, load_configuration
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.config.versions import VERSIONS
from bayesmesh.errors import ConfigError, DataError, StoreError, UserError, suggest
from bayesmesh.store.layout import DataLayout, ExperimentLayout, SweepLayout, group_name
from bayesmesh.store.records.files import is_of_mirror
from bayesmesh.store.records.jobs import digest_input, read_record
from bayesmesh.workflow.code import named_files, stage_code
from bayesmesh.workflow.devices import check_devices, check_processes
from bayesmesh.workflow.flow import stages_of
from bayesmesh.workflow.jobs import Job, dataset_name, later_stages, make_job, spec_file, split_name, write_spec
from bayesmesh.workflow.launch import parse_processes
from bayesmesh.workflow.reruns import Current, is_made_with
from bayesmesh.workflow.resources import SampleJob, sample_memory_mb, sample_minutes
from bayesmesh.workflow.site import Site, load_site
from bayesmesh.workflow.warnings import asked_of_snakemake, warn_of_invalid


def use_own_environment() -> None:
    """Let jobs find the commands of Snakemake's own environment, whether or not it is activated."""
    folder = str(Path(sys.executable).parent)
    if os.environ["PATH"].split(os.pathsep)[:1] != [folder]:
        os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])


class Wildcards(Protocol):
    """Wildcards of a job: an experiment, or a dataset and perhaps a split."""

    experiment: str

    def items(self) -> Iterable[tuple[str, str]]: ...


class _Experiments(dict[str, ExperimentBase]):
    """Valid experiments by name; only ``[]`` raises for an invalid or unknown one.

    For ``in``, ``get`` and iteration, an invalid experiment is absent.
    """

    def __init__(self, valid: Mapping[str, ExperimentBase], plan: Plan) -> None:
        super().__init__(valid)
        self._plan = plan

    def __missing__(self, name: str) -> ExperimentBase:
        if name in self._plan.sweeps:
            members = self._plan.sweeps[name].members
            several = f"'{name}' is a sweep of {len(members)} experiments, not one of them"
            raise ConfigError(several, f"name a member: {suggest(name, members)}")
        unknown = f"no experiment '{name}' in {self._plan.config / 'experiments'}: {suggest(name, [*self, *self._plan.broken])}"
        error = self._plan.broken.get(name) or ConfigError(unknown)
        if self._plan.workflow is not None:
            _exit_with(error)
        raise error


def _without_stores(paths: Iterable[Path]) -> list[str]:
    """Leave out Zarr stores: a table of their job stands for them, because Snakemake copies outputs before each run."""
    return [str(path) for path in paths if path.suffix != ".zarr"]


def _input_files(experiment: Path, job: Job, checks: Sequence[Path]) -> list[str]:
    """Return the user's files that a job reads, except those of a mirror, which another machine may lack; and `checks`."""
    if not job.files.patterns and not checks:
        return []
    from snakemake.io import ancient

    try:
        # Their modification times do not matter, because records compare their content.
        return [ancient(str(name)) for name in (*checks, *job.files.find()) if not is_of_mirror(str(name))]
    except DataError as error:
        _exit_with(DataError(f"{experiment}: {error.message}", error.remedy))


def _exit_with(error: UserError) -> NoReturn:
    """End Snakemake's planning; Snakemake would wrap an exception from a rule in one of its own."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


class Plan:
    """The configuration as the workflow uses it.

    Args:
        config: folder with ``config.yaml`` and ``experiments/``.
        results: folder of results.
        workflow: Snakemake's workflow, which knows at planning whether this is a dry run, where jobs run, and how many
            cores they have; None outside Snakemake, where no spec is written.
        asked: names of experiments that the caller needs. The error of the first invalid one ends the command, so there is no
            warning of it, as there is of the others. Within Snakemake they come from its command line. None warns of no file,
            in a job: planning did.

    Raises:
        ConfigError: `config.yaml` is invalid; an invalid experiment is refused when it is requested.
    """

    def __init__(
        self, config: str = "config", results: str = "results", *, workflow: Any = None,
        asked: Iterable[str] | None = (),
    ) -> None:  # fmt: skip
        self.config, self.results, self.workflow = Path(config), results, workflow
        self.run, experiments, self.broken, self.sweeps, self.refits = load_configuration(self.config)
        self.experiments = _Experiments(experiments, self)
        # Not in each job, because every job reads the configuration again.
        if self.broken and asked is not None and (workflow is None or workflow.is_main_process):
            known = {*experiments, *self.broken}
            warn_of_invalid(self.broken, asked_of_snakemake(known, self.run.experiments) if workflow else asked)
        self._codes: dict[tuple[object, ...], str] = {}
        self._of_data = {
            (self.dataset(name), split): name for name in self.experiments for split in (None, self.split(name))
        }

    def _check_job(self, stage: str, name: str) -> None:
        """Exit with code 2 if a requested experiment does not fit this machine or the profile.

        Snakemake knows where jobs run only when it plans them.
        """
        if self.workflow is None:
            return
        path, experiment = self.file(name), self.experiments[name]
        try:
            check_start_file(str(path), experiment.sampling.initial)
            # Finished results may come from another machine or profile, and later stages need neither devices nor processes.
            if stage in ("compile", "sample") and not all(is_made_with(*each) for each in self._jobs_of(stage, name)):
                if self.workflow.local_exec:
                    check_devices(path, experiment, self.threads(name, self.workflow.cores or os.cpu_count()))
                if self._processes is not None:
                    check_processes(path, experiment, *self._processes, load_site()[0])
        except ConfigError as error:
            _exit_with(error)

    def _asked(self, resource: str) -> str | None:
        """Return a resource of sampling jobs as written in the profile or on the command line; None if unset."""
        if self.workflow is None:
            return None
        asked = self.workflow.resource_settings.overwrite_resources.get("sample", {})
        return str(getattr(asked[resource], "raw", asked[resource])) if resource in asked else None

    @property
    def _processes(self) -> tuple[int, int] | None:
        """Nodes of a program and processes on each as set by the profile, else by the experiment."""
        asked = self._asked("processes")
        return None if asked is None else parse_processes(asked)

    @property
    def targets(self) -> list[str]:
        """Names of the targets that make one experiment each; that of an invalid experiment is refused when it is requested."""
        named = (name for name in self.broken if re.fullmatch(NAME_PATTERN, name) and name not in RESERVED_NAMES)
        return sorted({*self.experiments, *self.sweeps, *named})

    def _data(self, name: str) -> dict[str, object]:
        return self.experiments[name].data.model_dump(mode="json")

    def dataset(self, name: str) -> str:
        """Return the dataset of an experiment; experiments may share one."""
        return dataset_name(self._data(name))

    def split(self, name: str) -> str:
        """Return the split of an experiment."""
        return split_name(self._data(name))

    def groups(self, name: str) -> list[str]:
        """Return the names of an experiment's chain groups."""
        return [group_name(g) for g in range(self.experiments[name].sampling.chain_groups)]

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def layout(self, name: str) -> ExperimentLayout:
        """Return the files of an experiment."""
        return ExperimentLayout(Path(self.results), name)

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def file(self, name: str) -> Path:
        """Return the file that an experiment is written in."""
        return experiment_file(self.config, name)

    def page(self, name: str) -> Path:
        """Return the page of an experiment, or that of a sweep."""
        return SweepLayout(Path(self.results), name).page if name in self.sweeps else self.layout(name).page

    def members_of(self, names: Iterable[str]) -> set[str]:
        """Return experiments, and the members of those that are sweeps."""
        return {each for name in names for each in (self.sweeps[name].members if name in self.sweeps else [name])}

    def shown_by_others(self) -> set[str]:
        """Return the members of sweeps, which the sweep's page shows, and the refits, which are shown with their experiment."""
        return self.members_of(self.sweeps) | {name for names in self.refits.values() for name in names}

    def data_layout(self, name: str) -> DataLayout:
        """Return the files of an experiment's data."""
        return DataLayout(Path(self.results), self.dataset(name), self.split(name))

    @property
    def cores(self) -> int:
        """Cores that jobs on this machine share; inside a cluster job, those of the job.

        The process that submits to a cluster has no such number: the profile sets the cores of a job.
        """
        return (self.workflow and self.workflow.resource_settings.cores) or 1

    def processes(self, name: str) -> str:
        """Return the processes of a program as nodes x processes; a profile for several nodes overrides it."""
        return f"1x{self.experiments[name].compute.processes}"

    def threads(self, name: str, cores: int | None) -> int:
        """Return the cores of one chain group's job: an even share of the experiment's, or all cores of a cluster job."""
        groups = 1 if self._is_alone else self.experiments[name].sampling.chain_groups
        return max(1, self.share(name, cores or 1) // groups)

    def share(self, name: str, cores: int) -> int:
        """Return the cores of a job of an experiment: all of them, but an even share for members of a sweep and for refits.

        Members finish sooner side by side on one core each than one after the other on all cores. The requested targets
        decide: a single named member gets all cores. A configured mesh gets as many cores as it has devices.
        """
        members = set(self._companions.get(name, ()))
        asked = set(self.workflow.dag_settings.targets) if self.workflow is not None and members else set()
        running = asked if asked and asked <= members else members
        if self._is_alone or len(running) < 2:
            return cores
        mesh = self.experiments[name].compute.mesh
        devices = 1 if mesh == "auto" else mesh.chain * mesh.data
        return max(1, cores // len(running), min(devices, cores))

    @property
    def _is_alone(self) -> bool:
        """Whether this is a job on a cluster, which shares its cores with no other job."""
        return self.workflow is not None and self.workflow.remote_exec

    @functools.cached_property
    def _companions(self) -> dict[str, Sequence[str]]:
        """Member -> the members of its sweep; refit -> the refits of its experiment."""
        together = [*(list(sweep.members) for sweep in self.sweeps.values()), *self.refits.values()]
        return {name: names for names in together for name in names}

    @functools.cached_property
    def _site(self) -> Site:
        return load_site()[1]

    @property
    def _sample_job(self) -> SampleJob:
        """Limits and shape of a sampling job on the cluster."""
        site = self._site
        limits = site.cpu if self._asked("gpu") is None else site.gpu
        return SampleJob(limits, site.stop_minutes, (self._processes or (1, 1))[0])

    def sample_memory_mb(self, wildcards: Wildcards, attempt: int) -> int:
        """Return the memory of a chain group's job, for `resources`, once the compile stage has measured it."""
        return sample_memory_mb(self.layout(wildcards.experiment).audit, attempt, self._sample_job)

    def sample_minutes(self, wildcards: Wildcards, attempt: int) -> int:
        """Return the time of a chain group's job, for `resources`, once the compile stage has measured it."""
        name = wildcards.experiment
        return sample_minutes(self.layout(name).audit, attempt, self._sample_job, self.experiments[name])

    def manifests(self, name: str) -> list[Path]:
        """Return the manifests of all chain groups."""
        return [self.layout(name).sampled(g) for g in self.groups(name)]

    def analyses(self) -> list[AnalysisDeclaration]:
        """Return the analyses of bayesmesh, and those of users' packages that experiments ask for; each is a rule."""
        own = sorted({name for each in self.experiments.values() for name in each.analyses})
        return [*list_analyses(), *map(declared, own)]

    def analysis_outputs(self, analysis: AnalysisDeclaration) -> list[str]:
        """Return the tables that an analysis writes, with ``{experiment}`` in place of the name."""
        return _without_stores(analysis.files(self.layout("{experiment}").folder).values())

    def inputs(self, stage: str) -> Callable[[Wildcards], tuple[Path | str, ...]]:
        """Return a function of wildcards that returns what a job of a stage reads."""

        def inputs(wildcards: Wildcards) -> tuple[Path | str, ...]:
            name = self._name(wildcards)
            job = self.job(stage, name).of_group(dict(wildcards.items()).get("group", ""))
            # No refit is sampled before the model and the analyses of its experiment have been checked.
            refits = self.refits.items() if stage == "compile" else ()
            audits = [self.layout(whole).audit for whole, names in refits if name in names]
            posterior = {
                self.layout(each).posterior: self.layout(each).posterior_hashes for each in (name, *job.others)
            }
            results = _without_stores(posterior.get(path, path) for path in job.inputs)
            # With them a job that has to run makes up for lost inputs of its own, whatever the target.
            needed = self._needed([name, *job.others])
            jobs = [each.job for one in needed for each in self.jobs_of(one)]
            wrote = {path: each.record for each in jobs for path in each.outputs}
            records = dict.fromkeys(str(wrote[path]) for path in job.inputs)
            return (*results, *records, *_input_files(self.file(name), job, audits))

        return inputs

    def jobs(self, *names: str) -> list[Current]:
        """Return the jobs on which the pages of experiments and sweeps depend, those of the pages included."""
        found: dict[Path, Current] = {}
        named = self.members_of(names)
        for name in names:
            if name in self.sweeps:
                job = Job(stage="comparison", experiment=name, results=Path(self.results), config={})
                found[job.record] = Current(job)
        for name in self._needed(named):
            stages = stages_of(self.experiments[name])
            if name not in named:
                # Others read the posterior and the verdict alone.
                stages = stages[: stages.index("diagnose") + 1]
            found |= {each.job.record: each for stage in stages for each in self._jobs_of(stage, name)}
        return list(found.values())

    def jobs_of(self, name: str) -> Iterator[Current]:
        """Yield all jobs of an experiment, in the order of the flow."""
        for stage in stages_of(self.experiments[name]):
            yield from self._jobs_of(stage, name)

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def _jobs_of(self, stage: str, name: str) -> list[Current]:
        """Return the jobs of a stage of an experiment."""
        job, code = self.job(stage, name), self.code_of_stage(stage, name)
        return [Current(each, code) for each in job.of_groups()]

    def _needed(self, names: Iterable[str]) -> dict[str, None]:
        """Return experiments, those that analyses of these read, their refits, and those whose chains they continue."""
        needed: dict[str, None] = {}
        queue = sorted(names)
        while queue:
            name = queue.pop()
            if name not in needed:
                needed[name], experiment = None, self.experiments[name]
                queue += [*self.refits.get(name, ()), *filter(None, [experiment.relative])]
                queue += [
                    other for each in experiment.requested_analyses() for other in experiment.named_experiments(each)
                ]
        return needed

    def goals(self, *names: str) -> list[Path]:
        """Return the pages of experiments and sweeps, with the records of all jobs on which they depend.

        Snakemake makes a missing file only for a job that has to run, and a target is one.
        """
        return [*map(self.page, names), *(each.job.record for each in self.jobs(*names))]

    def goal(self, name: str) -> Callable[[Wildcards], list[Path]]:
        """Return a function of wildcards that returns the same for one of them."""
        return lambda _: self.goals(name)

    def overview(self) -> list[Path]:
        """Return the index and its record, with the goals of what is listed."""
        index = self._index_job
        return [*index.outputs, index.record, *self.goals(*self.run.experiments)]

    @property
    def _index_job(self) -> Job:
        return Job(stage="index", experiment="index", results=Path(self.results), config={})

    def requested_jobs(self) -> list[Current]:
        """Return the jobs on which the targets on Snakemake's command line depend."""
        known = {*self.experiments, *self.sweeps}
        names = [name for name in asked_of_snakemake(known, self.run.experiments) if name in known]
        return [*self.jobs(*names), Current(self._index_job)]

    def input_files(self, wildcards: Wildcards) -> list[str]:
        """Return names and digests of the user's files that `fetch` reads, for `params`; without those of a mirror, see `inputs`."""
        job = self.job("fetch", self._name(wildcards))
        try:
            stamps = read_record(job.record).files
        except StoreError:
            stamps = {}
        files = {name: path for name, path in job.files.find().items() if not is_of_mirror(name)}
        return [f"{name} {digest_input(path, stamps.get(name))}" for name, path in sorted(files.items())]

    def category(self, name: str) -> str:
        """Return the heading of an experiment in Snakemake's own report."""
        return self.experiments[name].report.category

    def trigger(self, stage: str) -> Callable[[Wildcards], str]:
        """Return a function of wildcards that returns the digest of the settings that trigger the stage, for `params`."""
        return lambda wildcards: self._trigger(stage, self._name(wildcards))

    def spec(self, stage: str) -> Callable[..., str]:
        """Return a function of wildcards that returns the file of the stage's spec, for `params`.

        The file is named after its content, so it never changes. Not every setting passed to a stage makes it run again:
        Snakemake does not compare params derived from inputs, and an argument makes it treat this one as such.
        """

        def spec(wildcards: Wildcards, input: object = None) -> str:
            del input
            return self._spec(stage, self._name(wildcards))

        return spec

    def later(self, name: str) -> str:
        """Return the specs of the stages for which `compile` checks data and model, separated by commas.

        They are not `params` of its rule, because asking for an analysis of finished chains must not compile again.
        """
        return ",".join(self._spec(stage, name) for stage in later_stages(self.experiments[name]))

    def code(self, stage: str) -> Callable[[Wildcards], str]:
        """Return a function of wildcards that returns the stage's code, for `params`."""
        return lambda wildcards: self.code_of_stage(stage, self._name(wildcards))

    def code_of(self, stage: str) -> str:
        """Return the version of a stage, for the index and the pages of sweeps."""
        return VERSIONS[stage]

    def _name(self, wildcards: Wildcards) -> str:
        """Return an experiment; for a dataset, an experiment that uses it."""
        values = dict(wildcards.items())
        if "experiment" in values:
            return str(values["experiment"])
        return self._of_data[values["dataset"], values.get("split")]

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def _trigger(self, stage: str, name: str) -> str:
        if stage not in ("fetch", "shard"):
            self._check_job(stage, name)
        return self.job(stage, name).digest

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def _spec(self, stage: str, name: str) -> str:
        job = self.job(stage, name)
        is_written = self.workflow is not None and not self.workflow.dryrun
        return str(write_spec(job) if is_written else spec_file(job)[0])

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def job(self, stage: str, name: str) -> Job:
        """Return the job of a stage of an experiment; the chain groups of `sample` share its settings."""
        return make_job(stage, name, self.experiments[name], self.results, self.experiments)

    @functools.cache  # noqa: B019 - one plan lives as long as the process
    def code_of_stage(self, stage: str, name: str) -> str:
        """Return the code of a stage with the components of an experiment."""
        job = self.job(stage, name)
        key = stage, named_files(job)
        # Experiments share most components, whose files are read once.
        if key not in self._codes:
            self._codes[key] = stage_code(job)
        return self._codes[key]
