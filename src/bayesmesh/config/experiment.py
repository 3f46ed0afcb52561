"""The whole configuration: `config.yaml`, which lists what to run, and one `Experiment` per file."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, PrivateAttr, Tag, create_model, model_validator

from bayesmesh.config.blocks import (
    ComputeSettings,
    DataSettings,
    GateSettings,
    PosteriorSettings,
    ReportSettings,
    SamplingSettings,
)
from bayesmesh.config.declarations import OWN_KEY, STAGE_NAMES, TARGET_NAMES, key_of, list_analyses
from bayesmesh.config.registry import BLOCKS, list_components, options_class
from bayesmesh.config.settings import CODE_PATTERN, NO_SOURCE, Name, Settings, does_not_fit
from bayesmesh.config.sweep import SweepSettings
from bayesmesh.errors import ConfigError

RESERVED_NAMES = TARGET_NAMES | STAGE_NAMES | {each.verb for each in list_analyses()}
"""Names of targets, rules and folders, which an experiment must not have."""

EXTERNAL = "module:attribute"

_NAMES_FIELDS = (
    "formula", "weights", "offset", "exposure", "trials", "held_out_groups", "held_out_last", "replicates",
    "group", "future", "strata", "censored", "interval_end", "known_error", "rounded", "truncated", "parameters",
)  # fmt: skip
"""Keys of `data`, `model` and analyses that name fields."""

_FIELD = re.compile(r"`[^`]+`|(?<!\w)[^\W\d]\w*(?![\w(])")
"""Matches names in a formula, other than those of functions."""

DEFAULT_KERNEL = {"name": "nuts"}


class NamedBlock(Settings):
    """A model or a kernel: its name and its options."""

    name: str


class SourceBlock(DataSettings):
    """A source: its name, its options and the held-out split."""

    source: str


class ExternalModel(NamedBlock):
    """A model from the user's own package."""

    name: str = Field(pattern=CODE_PATTERN)
    """The model, as `module:attribute`."""
    options: dict[str, Any] = Field({})
    """Options of the model, validated by its class Options."""


class ExternalKernel(NamedBlock):
    """A kernel from the user's own package."""

    name: str = Field(pattern=CODE_PATTERN)
    """The kernel, as `module:attribute`."""
    options: dict[str, Any] = Field({})
    """Options of the kernel, validated by its class Options."""


class ExternalSource(SourceBlock):
    """A source from the user's own package."""

    source: str = Field(pattern=CODE_PATTERN)
    """The source, as `module:attribute`."""
    options: dict[str, Any] = Field({})
    """Options of the source, validated by its class Options."""


_EXTERNAL: dict[str, type[Settings]] = {"model": ExternalModel, "kernel": ExternalKernel, "source": ExternalSource}


class RunSettings(Settings):
    """`config/config.yaml`: what to run."""

    experiments: list[Name] = Field(min_length=1, examples=[["digits", "growth"]])
    """Experiments run by `make run` and by `snakemake` without a target."""


class ExperimentBase(Settings):
    """The keys whose shape does not depend on the registries."""

    title: str = Field("", min_length=1, max_length=200, examples=["Growth in three sites"])
    """Heading of the experiment's page; by default, the name of the file."""
    sampling: SamplingSettings = Field(SamplingSettings())
    """Chains and draws."""
    compute: ComputeSettings = Field(ComputeSettings())
    """Devices, mesh and arithmetic."""
    posterior: PosteriorSettings = Field(PosteriorSettings())
    """Quantities stored with the draws."""
    gates: GateSettings = Field(GateSettings())
    """Convergence gates."""
    report: ReportSettings = Field(ReportSettings())
    """The experiment's page."""
    analyses: dict[str, dict[str, Any]] = Field({}, examples=[{"my_study.tails:Tails": {}}])
    """Analyses from your own package: `module:attribute` -> its options, such as `my_study.tails:Tails: {}`."""
    sweep: SweepSettings | None = None
    """Turns the file into many experiments that differ in the settings listed here; the file's name runs all of them."""

    _refits: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    _relative: str = PrivateAttr("")
    if TYPE_CHECKING:
        # Added by `experiment_class`, from the registries.
        data: SourceBlock
        model: NamedBlock
        kernel: NamedBlock

    def requested_analyses(self) -> dict[str, object]:
        """Return name -> settings of the analyses that the experiment asks for: those of bayesmesh, then its own.

        The latter's are as they were written: jobs import the class of their options, see `analysis_settings`.
        """
        return requested(dict(self))

    def analysis_settings(self, analysis: str) -> Settings:
        """Return the settings of an analysis that the experiment asks for; one of the user's own package is imported.

        Raises:
            ConfigError: it does not exist.
            ValidationError: its options are invalid.
        """
        if analysis in self.analyses:
            return options_class("analysis", analysis).model_validate(self.analyses[analysis])
        settings: Settings = getattr(self, analysis)
        return settings

    def named_experiments(self, analysis: str) -> tuple[str, ...]:
        """Return the other experiments that an analysis reads: its refits, or the key ``experiments`` of its settings."""
        if analysis in self._refits:
            return self._refits[analysis]
        own = self.analyses.get(analysis)
        return tuple(
            getattr(getattr(self, analysis, None), "experiments", ()) if own is None else own.get("experiments", ())
        )

    @property
    def relative(self) -> str:
        """Name of the experiment whose chains this one continues; empty if there is none."""
        named = self.sampling.initial.relative
        return self._relative if named in ("auto", "none") else named

    def name_relative(self, name: str) -> None:
        """Set the experiment whose chains this one continues by default, which follows from the whole configuration."""
        self._relative = name

    def name_refits(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """Set analysis -> names of its refits, which are known only once the whole configuration has been read."""
        self._refits = dict(names)

    def without_analyses(self, update: Mapping[str, Any]) -> ExperimentBase:
        """Return a copy without analyses, with some other keys."""
        shipped = {name: None for name in self.requested_analyses() if name not in self.analyses}
        made = self.model_copy(update={**shipped, "analyses": {}, **update})
        made.name_refits({})
        return made

    @model_validator(mode="before")
    @classmethod
    def _name_needed_fields(cls, values: Any) -> Any:
        """Let rows be dropped only for missing values of fields that the formula of `glm` and other keys name."""
        match values:
            case {"data": {"source": "table", "missing": "drop"}, "model": {"name": "glm"}}:
                blocks = [block for block in values.values() if isinstance(block, Mapping)]
            case _:
                return values
        named = [block[key] for block in blocks for key in _NAMES_FIELDS if block.get(key)]
        # Bounds and parameters have one text each, or a formula.
        parts = [list(each.values()) if isinstance(each, Mapping) else [each] for each in named]
        texts = [str(x.get("formula", "") if isinstance(x, Mapping) else x) for part in parts for x in part]
        needed = sorted({name for text in texts for name in _FIELD.findall(text)})
        return {**values, "data": {"needed": [name.strip("`") for name in needed], **values["data"]}}

    @model_validator(mode="after")
    def _check_conflicts(self) -> ExperimentBase:
        for key, problem, remedy in (
            *self._outcome_conflicts(), *self._replicate_conflicts(), *self._mesh_conflicts(), *self._stop_conflicts(),
            *self._gate_conflicts(),
        ):  # fmt: skip
            raise does_not_fit(key, problem, remedy)
        return self

    def _outcome_conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy where gaps of the outcome of a formula would be filled in."""
        formula: str = getattr(getattr(self, "model", None), "formula", "")
        indicated: tuple[str, ...] = getattr(getattr(self, "data", None), "indicate_missing", ())
        for name in _FIELD.findall(formula.partition("~")[0]):
            if name.strip("`") in indicated:
                yield (
                    "data.indicate_missing",
                    f"{name} is the outcome, whose gaps would be filled in and taken for observed",
                    "leave it out, and its rows as well\n    data:\n      missing: drop",
                )

    def _mesh_conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy where chain groups, mesh and processes are incompatible."""
        sampling, compute = self.sampling, self.compute
        if sampling.chains % sampling.chain_groups:
            yield (
                "sampling.chain_groups",
                f"{sampling.chain_groups} groups do not divide {sampling.chains} chains evenly",
                f"use one of {_divisors(sampling.chains)}, or another number of chains",
            )
        if sampling.mode == "sharded" and sampling.chain_groups != 1:
            yield (
                "sampling.chain_groups",
                f"must be 1 when sampling.mode is sharded (one job spans all devices), found {sampling.chain_groups}",
                "use\n    sampling:\n      mode: independent",
            )
        # The devices of many datasets are spread over the datasets.
        is_of_chains = not self._has_replicates
        if compute.mesh != "auto" and is_of_chains and sampling.chains_per_group % compute.mesh.chain:
            yield (
                "compute.mesh.chain",
                f"{compute.mesh.chain} devices do not divide the {sampling.chains_per_group} chains of a program evenly",
                f"use one of {_divisors(sampling.chains_per_group)}",
            )
        if compute.processes > 1 and sampling.mode != "sharded":
            yield (
                "compute.processes",
                f"{compute.processes} processes share the rows of one program, but sampling.mode is {sampling.mode}",
                "use\n    sampling:\n      mode: sharded\n  or set compute.processes to 1: chain groups are separate processes",
            )
        if compute.mesh != "auto" and compute.mesh.data % compute.processes:
            yield (
                "compute.mesh.data",
                f"{compute.mesh.data} devices along the rows cannot be shared evenly by {compute.processes} processes (compute.processes)",
                f"use a multiple of {compute.processes}, or `mesh: auto`",
            )

    @property
    def _has_replicates(self) -> bool:
        # The base class by itself has no data.
        return getattr(getattr(self, "data", None), "replicates", None) is not None

    def _replicate_conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy of features that exist for one dataset but not for the many of `data.replicates`."""
        if not self._has_replicates:
            return
        sampling, compute = self.sampling, self.compute
        together = "does not go together with data.replicates"
        if sampling.stop is not None:
            yield "sampling.stop", f"{together}: datasets need different numbers of draws", "remove sampling.stop"
        if compute.processes > 1:
            yield "compute.processes", f"{together}: datasets are spread over the devices of one process", "use 1"
        if compute.mesh != "auto" and compute.mesh.data > 1:
            yield (
                "compute.mesh.data", f"{together}: a device has all rows of its datasets",
                "use `mesh: auto`, or {chain: N}, which spreads the datasets over N devices",
            )  # fmt: skip
        if compute.sharding != "named":
            yield (
                "compute.sharding",
                f"{together}: no sum goes over devices",
                "use\n    compute:\n      sharding: named",
            )
        if compute.row_tile != "auto":
            yield "compute.row_tile", f"{together}: tiles are chosen by the rows of a dataset", "use `row_tile: auto`"
        if sampling.initial.method in ("file", "model"):
            yield (
                "sampling.initial.method", f"{together}: its points are those of one dataset",
                "use\n    sampling:\n      initial: {method: auto}",
            )  # fmt: skip
        for key in map(key_of, self.requested_analyses()):
            yield key, f"{together}: it reads the posterior of one dataset", f"remove the key {key}"

    def _stop_conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy where the stopping rule does not fit chains and processes."""
        sampling, stop = self.sampling, self.sampling.stop
        if stop is None:
            return
        if self.compute.processes > 1:
            yield (
                "sampling.stop",
                f"needs all draws in one process, but compute.processes is {self.compute.processes}",
                "remove sampling.stop, or use one process",
            )
        if stop.max_r_hat is not None and sampling.chains_per_group < 2:
            yield (
                "sampling.stop.max_r_hat",
                "R-hat compares the chains of a group, but the groups have one chain each",
                "use fewer chain_groups, more chains, or another target",
            )
        if stop.first_look > sampling.draws:
            yield (
                "sampling.stop.first_look",
                f"{stop.first_look} draws are more than sampling.draws, {sampling.draws}: there would be no look",
                "raise sampling.draws, the limit, or lower first_look",
            )

    def _gate_conflicts(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, problem and remedy of gates that can never be assessed with these chains; defaults are not checked."""
        superchains, chains = self.gates.superchains, self.sampling.chains
        if superchains is not None and chains % superchains:
            yield (
                "gates.superchains",
                f"{superchains} superchains do not divide {chains} chains evenly",
                f"give the number of different starting points, one of {_divisors(chains)}",
            )
        num_draws = self.sampling.chains * self.sampling.draws
        # The bound of the estimates, as in Stan and ArviZ: anticorrelated draws count for more than independent ones.
        most = num_draws * math.log10(num_draws)
        for name in ("ess_bulk", "ess_tail"):
            if name in self.gates.model_fields_set and getattr(self.gates, name).limit > most:
                yield (
                    f"gates.{name}",
                    f"no {num_draws} draws (sampling.chains times sampling.draws) can have an effective sample size of"
                    f" {getattr(self.gates, name).limit:g}: at most {most:.0f}",
                    "raise sampling.draws or sampling.chains, or lower the limit",
                )


_KEYS_OF_ALL = frozenset({*ExperimentBase.model_fields, "data", "model", "kernel"})
"""Keys of every experiment; the others are analyses."""


def requested(config: Mapping[str, object]) -> dict[str, object]:
    """Return name -> settings of the analyses that an experiment asks for: those of bayesmesh, then its own.

    Args:
        config: top-level keys of the experiment, all or some, as plain values.

    >>> requested({"title": "Some", "loo": None, "some_analysis": {}, "analyses": {"mine:Tails": {"level": 0.9}}})
    {'some_analysis': {}, 'mine:Tails': {'level': 0.9}}
    """
    own = config.get(OWN_KEY)
    asked = {name: config[name] for name in sorted(config) if name not in _KEYS_OF_ALL and config[name] is not None}
    return asked | dict(sorted(own.items())) if isinstance(own, Mapping) else asked


def _divisors(number: int) -> str:
    return ", ".join(str(d) for d in range(1, min(number, 64) + 1) if number % d == 0)


def _tag_of(key: str, names: tuple[str, ...]) -> Callable[[object], str | None]:
    def tag(value: object) -> str | None:
        name = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
        if isinstance(name, str) and ":" in name:
            return EXTERNAL
        return name if name in names else None

    return tag


def _union(kind: str, key: str, base: type[Settings]) -> Any:
    """Return a union with one variant per registered component, discriminated by `key`."""
    names = tuple(list_components(kind))
    variants: list[Any] = []
    for name in names:
        options = options_class(kind, name)
        variant = create_model(
            f"{name}_{kind}",
            __base__=(options, base),
            __cls_kwargs__=NO_SOURCE,
            **{key: (Literal[name], Field(description=f"The {kind}."))},  # type: ignore[call-overload]  # a field by a computed name
        )
        variants.append(Annotated[variant, Tag(name)])
    variants.append(Annotated[_EXTERNAL[kind], Tag(EXTERNAL)])
    return Annotated[Union[tuple(variants)], Discriminator(_tag_of(key, names))]  # noqa: UP007


def _analysis_fields() -> dict[str, Any]:
    """Return one optional key per analysis whose options can be read, named after it."""
    fields: dict[str, Any] = {}
    for each in list_analyses():
        if each.name in _KEYS_OF_ALL:
            raise ConfigError(f"{each.path}: '{each.name}' is a key of every experiment", "choose another name")
        options = options_class("analysis", each.name)
        # Give the class a unique name, because all are called Options in their files.
        block = create_model(
            f"{each.name}_settings", __base__=options, __doc__=options.__doc__, __cls_kwargs__=NO_SOURCE
        )
        meaning = (options.__doc__ or each.pretty_name).partition("\n")[0].rstrip(".")
        fields[each.name] = (block | None, Field(None, description=f"{meaning}. Runs only if this key is present."))
    return fields


@functools.cache
def experiment_class() -> type[ExperimentBase]:
    """Build the class of an experiment file from the registries of sources, models, kernels and analyses."""
    return create_model(
        "Experiment",
        __base__=ExperimentBase,
        __cls_kwargs__=NO_SOURCE,
        **_analysis_fields(),
        data=(_union("source", "source", SourceBlock), Field(description="Data source and held-out split.")),
        model=(_union("model", "name", NamedBlock), Field(description="Model and its options.")),
        kernel=(
            _union("kernel", "name", NamedBlock),
            Field(
                DEFAULT_KERNEL, validate_default=True, description="Transition kernel and its options; by default nuts."
            ),
        ),
    )


def component_options(kind: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a component: its block without the name and the shared keys."""
    name = BLOCKS[kind][1]
    if ":" in str(config[name]):
        options = config.get("options")
        return dict(options) if isinstance(options, Mapping) else {}
    shared = DataSettings.model_fields if kind == "source" else ()
    return {k: v for k, v in config.items() if k != name and k not in shared}
