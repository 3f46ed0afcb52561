"""Find results on which to check an analysis: those of a finished experiment, or built-in data with draws from a prior."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import zarr
from pydantic import ValidationError

from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.config.blocks import DataSettings, GateSettings
from bayesmesh.config.declarations import AnalysisDeclaration, declared, read_offers
from bayesmesh.config.refit_settings import LeftOut, Refits
from bayesmesh.config.registry import list_components, load_component, options_class, resolve_component
from bayesmesh.data.base import Source
from bayesmesh.data.sharding import shard
from bayesmesh.data.views import prepared
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.errors import ConfigError
from bayesmesh.operations.check.line import resolve
from bayesmesh.store.arrays import chunk_shape, create_array, dimension_names, open_group, write_array, write_texts
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.stages.inputs import bind

OTHER = "another"
"""Name of the second built-in experiment, for an analysis of several."""

Bind = Callable[[], BoundModel]


class Checked(NamedTuple):
    """An analysis, and the experiments on which it is to be checked.

    Attributes:
        declaration: what its class declares.
        analysis_class, options: from which it is made.
        origin: where the posterior comes from, in words.
        layout, bind: of the experiment.
        others: name -> the same for the other experiments that the options name.
        is_built_in: whether data and model are not the user's.
    """

    declaration: AnalysisDeclaration
    analysis_class: type[Any]
    options: Any
    origin: str
    layout: ExperimentLayout
    bind: Bind
    others: Mapping[str, tuple[ExperimentLayout, Bind]]
    is_built_in: bool

    def make(self) -> Any:
        """Return the analysis."""
        return self.analysis_class(self.options)

    def subject(self) -> Subject:
        """Return the experiment, unopened, with data only if the analysis declares that it reads them."""
        return self._subject(self.layout, self.bind)

    def other_subjects(self) -> dict[str, Subject]:
        """Return the others, unopened."""
        return {name: self._subject(*about) for name, about in self.others.items()}

    def _subject(self, layout: ExperimentLayout, bind: Bind) -> Subject:
        reads = self.declaration.reads
        return Subject(layout, bind if "data" in reads else None, reads_posterior="posterior" in reads)


def find_checked(name: str, experiment: str | None, scratch: Path) -> Checked:
    """Return the analysis with an experiment: the named one; else the first finished one that asks for it; else a built-in one.

    Args:
        name: of the analysis, in the registry or ``module:attribute``.
        experiment: name of an experiment, which must have a posterior.
        scratch: empty folder for built-in results.

    Raises:
        ConfigError: an unknown name; the experiment has no posterior; options are missing.
    """
    is_configured = experiment is not None or Path("config/config.yaml").is_file()
    plan = Plan(asked=filter(None, [experiment])) if is_configured else None
    if plan is None or (experiment is None and (experiment := _first(plan, name)) is None):
        return _built_in(name, scratch)
    layout = plan.layout(experiment)
    asked, declaration = plan.experiments[experiment], declared(name)
    if not layout.posterior.is_dir():
        raise ConfigError(
            f"experiment '{experiment}': {layout.posterior} is not there", f"run `snakemake {experiment}` first"
        )
    settings = asked.analysis_settings(name).model_dump() if name in asked.requested_analyses() else {}
    analysis_class, options = resolve("analysis", name, settings)
    if isinstance(options, Refits) and options.left_out() and not asked.named_experiments(name):
        raise ConfigError(
            f"experiment '{experiment}': does not request {name}, which reads refits of the experiment",
            f"add the key `{name}: {{}}` to it, and run `snakemake {experiment}`",
        )
    others = {other: _of_job(plan.job("assemble", other)) for other in asked.named_experiments(name)}
    # Data and model, even if an analysis reads the posterior alone: its `check` gets them.
    return Checked(
        declaration, analysis_class, options, f"the posterior of experiment '{experiment}'",
        *_of_job(plan.job("assemble", experiment)), others, False,
    )  # fmt: skip


def _first(plan: Plan, name: str) -> str | None:
    """Return the first experiment that asks for an analysis and has a posterior."""
    asking = (each for each, about in sorted(plan.experiments.items()) if name in about.requested_analyses())
    return next((each for each in asking if plan.layout(each).posterior.is_dir()), None)


def _of_job(job: Job) -> tuple[ExperimentLayout, Bind]:
    return job.layout, lambda: bind(job, component_of(job, "model"))


def _built_in(name: str, scratch: Path) -> Checked:
    """Return an analysis on small data and a posterior of draws from the prior: two chains of three."""
    declaration = declared(name)
    settings = {"experiments": [OTHER]} if names_others(name) else {}
    try:
        analysis_class, options = resolve_component("analysis", name, settings)
    except ValidationError:
        analysis_class, options = resolve("analysis", name, {})
    source, model = (find_offering(kind, declaration.needs(kind)) for kind in ("source", "model"))
    reads = declaration.reads
    layout, bind = make_posterior(scratch, "own", source, model, seed=1, reads=reads)
    others = {
        other: make_posterior(scratch, other, source, model, 2 + i, left_out, reads)
        for i, (other, left_out) in enumerate(named_in(options, declaration).items())
    }
    origin = f"draws from the prior of model '{model}' with data of source '{source}'"
    return Checked(declaration, analysis_class, options, origin, layout, bind, others, True)


def named_in(options: Any, declaration: AnalysisDeclaration) -> dict[str, LeftOut | None]:
    """Return the other experiments that an analysis reads on built-in data -> what they leave out, if they are refits."""
    if isinstance(options, Refits):
        return dict(options.left_out())
    return {OTHER: None} if names_others(declaration.name) else {}


def names_others(analysis: str) -> bool:
    """Return whether the options of an analysis name other experiments."""
    return "experiments" in options_class("analysis", analysis).model_fields


def find_offering(kind: str, words: tuple[str, ...]) -> str:
    """Return the first source or model that offers all words; one that comes without files, or the plainest for no words.

    Raises:
        ConfigError: there is none.
    """
    if not words:
        return "gaussian"
    fitting = [each for each in list_components(kind) if set(words) <= set(read_offers(kind, each) or ())]
    found = next((n for n in fitting if kind == "model" or load_component(kind, n).fetch is Source.fetch), None)
    if found is None:
        raise ConfigError(
            f"no {kind} of bayesmesh offers {' and '.join(words)}", "give an experiment: --experiment NAME"
        )
    return found


def make_posterior(
    folder: Path,
    experiment: str,
    source: str,
    model: str,
    seed: int,
    left_out: LeftOut | None = None,
    reads: Sequence[str] = (),
) -> tuple[ExperimentLayout, Bind]:
    """Write small data and a posterior of draws from the prior, two chains of three draws each; experiments share the data.

    Args:
        folder: folder of results.
        experiment: name of the experiment.
        source, model: names of components, which take their default options.
        seed: seed of the draws.
        left_out: rows that it leaves out, if it is a refit.
        reads: what the analysis declares; with ``"verdict"`` the tables of `diagnose` are written too.

    Returns:
        The files of the experiment, and what binds its model to its data.
    """
    split = "all" if left_out is None else experiment
    data, layout = DataLayout(folder, "data", split), ExperimentLayout(folder, experiment)
    if not data.sharded.exists():
        source_class, options = resolve_component("source", source, {})
        dataset = source_class(options).read(folder)
        fraction = 0.0 if dataset.test_rows else 0.2
        shard(dataset, DataSettings(held_out_fraction=fraction, left_out=left_out), data)
    model_class, options = resolve_component("model", model, {})
    shards = prepared(data.shards, functools.partial(model_class.prepare, options))
    spec = shards.spec("float32")
    bound = model_class(options, spec)
    draws = bound.prior(spec).sample((2, 3), seed=jax.random.key(seed))
    group = open_group(layout.posterior, "w").create_group("posterior")
    for latent, values in draws.items():
        dims = (CHAIN, DRAW, *(f"{latent}_dim_{axis}" for axis in range(values.ndim - 2)))
        write_array(group, latent, np.asarray(values), dims)
    write_hashes(layout.posterior, {})
    if "verdict" in reads:
        # Repeated, because convergence statistics need more than three draws.
        repeated = {k: np.concatenate([np.asarray(values)] * 4, axis=1) for k, values in draws.items()}
        _write_verdict(layout, repeated)
    return layout, lambda: BoundModel(bound, spec, shards)


def _write_verdict(layout: ExperimentLayout, draws: Mapping[str, np.ndarray]) -> None:
    """Write the tables of `diagnose` for draws (chain, draw, ...), with the latents as monitored quantities."""
    diagnosed = layout.folder / "diagnosed.zarr"
    root = open_group(diagnosed, "w")
    statistics = {"lp": np.zeros(next(iter(draws.values())).shape[:2])}
    for name, arrays in {"posterior": draws, "summaries": draws, "sample_stats": statistics}.items():
        group = root.create_group(name)
        for each, values in arrays.items():
            write_array(group, each, values, (CHAIN, DRAW, *(f"{each}_dim_{i}" for i in range(values.ndim - 2))))
    diagnose(diagnosed, GateSettings(), layout)


def write_longer(posterior: Posterior, folder: Path, num_draws: int) -> Path:
    """Write a posterior that repeats the draws of another one, up to a number of draws per chain.

    Args:
        posterior: the posterior whose draws are repeated.
        folder: where to write it.
        num_draws: draws per chain.
    """
    root, layout = zarr.open_group(posterior.path, mode="r"), ExperimentLayout(folder, "longer")
    made = open_group(layout.posterior, "w")
    for name, group in root.groups():
        new = made.create_group(name)
        new.attrs.update(group.attrs.asdict())
        for each, array in group.arrays():
            dims = dimension_names(array)
            values = np.asarray(array[...] if DRAW not in dims else array[_first_draws(dims, num_draws)])
            axis = list(dims).index(DRAW) if DRAW in dims else None
            if axis is not None:
                values = np.take(values, np.arange(num_draws) % values.shape[axis], axis=axis)
            if array.ndim == 1 and each == DRAW:
                values = np.arange(num_draws)
            if values.dtype.kind not in "biuf":
                write_texts(new, each, values.tolist(), dims)
                continue
            # As many chunks as blocks: a chunk is read as a whole.
            chunks = chunk_shape(values.shape, values.dtype.itemsize, BlockedPosterior.most_bytes)
            create_array(new, each, values.shape, values.dtype, dims, chunks=chunks)[...] = values
    return layout.posterior


def bytes_per_draw(posterior: Posterior) -> int:
    """Return the bytes of one draw of all chains, in all groups that `write_longer` copies."""
    arrays = [array for _, group in zarr.open_group(posterior.path, mode="r").groups() for _, array in group.arrays()]
    drawn = [(array, list(dimension_names(array))) for array in arrays if DRAW in dimension_names(array)]
    return sum(array.nbytes // max(1, array.shape[dims.index(DRAW)]) for array, dims in drawn)


def _first_draws(dims: tuple[str, ...], num_draws: int) -> tuple[slice, ...]:
    return tuple(slice(num_draws) if dim == DRAW else slice(None) for dim in dims)


class BlockedPosterior(Posterior):
    """A posterior with small blocks, so that few draws suffice to see whether memory grows with them."""

    most_bytes = 2**14

    def blocks(self, names: Any = None, *, block_bytes: int = BLOCK_BYTES, group: str = "posterior") -> Any:
        """Yield the draws as the base class does, in blocks of at most `most_bytes`."""
        return super().blocks(names, block_bytes=min(block_bytes, self.most_bytes), group=group)
