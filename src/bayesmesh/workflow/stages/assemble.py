"""assemble: join the chain groups into one posterior store that xarray and ArviZ can open."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import zarr

from bayesmesh.analyses._draw_blocks import PriorDraws
from bayesmesh.analyses._outcome import find_outcome
from bayesmesh.analyses.base import Analysis, BoundModel, draw_shapes
from bayesmesh.analyses.effects.comparisons import comparisons_of
from bayesmesh.analyses.effects.curves import curves_of
from bayesmesh.analyses.effects.survival import survival_of
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import ReplicatedShards
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.files import JSON, atomic_folder
from bayesmesh.models.base import Model, Shown
from bayesmesh.sampling.checks.model import check_described
from bayesmesh.sampling.checks.precision import fields_read, rounded_fields
from bayesmesh.sampling.checks.rounding import is_compared, likelihood_rounding
from bayesmesh.sampling.density.deterministics import derive_deterministics
from bayesmesh.sampling.density.summaries import (
    Derived,
    derive,
    derive_datasets,
    derive_prior,
    spread_evenly,
    summaries_at_truth,
)
from bayesmesh.sampling.program.compilation import use_cache
from bayesmesh.store.arrays import consolidate, dimension_names, read_part, write_array, write_texts
from bayesmesh.store.chains.arrays import DRAWS
from bayesmesh.store.chains.manifests import PROCESSES_REMEDY, GroupManifest, missing_draws, read_manifest
from bayesmesh.store.chains.markers import DAMAGE_REMEDY
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import (
    CHAIN,
    CHECKS,
    CURVES,
    DATASET,
    DECLARED,
    DESCRIBED,
    DETERMINISTICS,
    DRAW,
    EFFECTS,
    FAST_PATH,
    FIXED,
    LEVEL_ROWS,
    POPULATIONS,
    ROUNDED,
    ROUNDED_LIKELIHOOD,
    ROW,
    SHOWN,
    SOME_ROWS,
    TOTAL,
    TRUTH,
    UNADJUSTED,
    ExperimentLayout,
    group_name,
    process_folder,
)
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.posterior.attributes import describe_groups, flatten
from bayesmesh.store.posterior.axes import GroupCoordinates, NamedAxes, NamedAxis, is_free
from bayesmesh.store.posterior.joining import join_groups, join_rows
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from bayesmesh.store.records.checked import read_checked
from bayesmesh.workflow.components import Component
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.checks import check_derived
from bayesmesh.workflow.stages.inputs import bind

_SAMPLE = "run the sample stage again"

_POINTWISE = ("log_likelihood", "posterior_predictive", "prior_predictive", "observed_data")
"""Groups with an axis of rows."""


def run(job: Job, ledger: Ledger, model: Component, checks: Mapping[str, Analysis]) -> str:
    """Assemble the posterior and return a line for the log.

    Args:
        job: specification of the stage.
        ledger: receives times and memory.
        model: the component.
        checks: name -> analysis with default settings, for all checks of a model's fit.

    Raises:
        StoreError: chains are missing or damaged, or another process assembles them.
    """
    use_cache(job.results)
    with WriterLock(job.layout.folder):
        return _assemble(job, ledger, model, checks)


def _assemble(job: Job, ledger: Ledger, component: Component, checks: Mapping[str, Analysis]) -> str:
    layout, sampling = job.layout, job.sampling
    manifests = [read_manifest(layout.sampled(group_name(g))) for g in range(sampling.chain_groups)]
    # Groups that stopped by a rule may differ in length; a posterior has one length.
    num_draws = min([sampling.draws, *(m.num_draws for m in manifests if m.stop)])
    with atomic_folder(layout.posterior) as partial:
        with ledger.phase("join"):
            processes = [_verified(layout, manifest, num_draws) for manifest in manifests]
            stores = [of_group[0] for of_group in processes]
            if len({m.identity for m in manifests}) > 1:
                raise StoreError(f"{layout.chains}: the chain groups have different identities", _SAMPLE)
            root = zarr.open_group(str(partial), mode="a", zarr_format=3)
            bound = bind(job, component)
            model, data_spec, shards = bound
            warmup = max((c.stop for c in stores[0].commits() if c.phase == "warmup"), default=0)
            wanted = {"posterior": num_draws, "sample_stats": num_draws}
            wanted |= {"warmup_sample_stats": warmup} if warmup else {}
            lead = [(DATASET, None)] if isinstance(shards, ReplicatedShards) else []
            folders = [store.folder / DRAWS for store in stores]
            # Chains of earlier versions declare no statistics.
            declared = manifests[0].statistics
            about = {k: {"units": v["unit"], "description": v["description"]} for k, v in declared.items()}
            names = {"log_likelihood": TOTAL}
            named = join_groups(root, partial, folders, wanted, model.axes(), lead, about, names)
            for of_statistics in {"sample_stats", "warmup_sample_stats"} & named.keys():
                group = root.require_group(of_statistics)
                _mark_saturated_trees(group, layout.identity_record(manifests[0].identity))
                if declared:
                    group.attrs.update(flatten({DECLARED: sorted(names.get(name, name) for name in declared)}))
            if not manifests[0].is_adjusted:
                root.require_group("sample_stats").attrs.update(flatten({UNADJUSTED: True}))
            if manifests[0].is_population:
                root.require_group("sample_stats").attrs[POPULATIONS] = len(manifests)
            if len(processes[0]) > 1:
                # Each process has the local latents of its own rows.
                axes = {f"posterior/{name}": axis + 2 for name, axis in model.local_latents.items()}
                join_rows(root, partial, [store.folder / DRAWS for store in processes[0]], axes, data_spec.num_entries)
        with ledger.phase("derive"):
            named |= _derive(job, partial, root, model, (shards, data_spec))
        for group_name_, coordinates in named.items():
            coordinates.write(root.require_group(group_name_))
        with ledger.phase("derive", "effects of predictors"):
            effects = {} if lead else _effects(bound, partial)
        said = {
            **_attributes(job, manifests),
            **_say(model, Shards(shards.path)),
            ROUNDED: _rounded(model, shards, data_spec),
            CHECKS: [] if lead else _possible_checks(checks, bound, partial),
            **effects,
        }
        root.attrs.update(flatten(said))
        describe_groups(root, _start_of(processes))
        consolidate(root)
    with ledger.phase("hash"):
        write_hashes(layout.posterior, _known_hashes([store for of_group in processes for store in of_group]))
    return f"{num_draws} draws of {sum(m.num_chains for m in manifests)} chains"


def _say(model: Model, shards: Shards) -> dict[str, JSON]:
    """Return what the page says of the model and of levels beside numbers."""
    return {
        SHOWN: [Shown(*each)._asdict() for each in model.shown()],
        DESCRIBED: check_described(model).model_dump(mode="json"),
        LEVEL_ROWS: shards.count_levels(),
    }


def _possible_checks(checks: Mapping[str, Analysis], bound: BoundModel, folder: Path) -> list[str]:
    """Return the names of the checks that model and data allow."""
    latents, found = draw_shapes(open_posterior(folder), bound.data_spec.dtype), []
    for name, analysis in checks.items():
        with contextlib.suppress(ConfigError):
            analysis.check(bound, latents)
            found.append(name)
    return found


def _effects(bound: BoundModel, folder: Path) -> dict[str, JSON]:
    """Return effects and curves of a model that names its predictors and whose predictions have an expectation."""
    if bound.model.prediction_fields() is not None:
        with contextlib.suppress(ConfigError):
            posterior, how = open_posterior(folder), check_described(bound.model).effects
            curves = [*survival_of(bound, posterior), *curves_of(bound, posterior)]
            return {EFFECTS: comparisons_of(bound, posterior, how), CURVES: curves}
    return {}


def _rounded(model: Model, shards: Shards, data_spec: DataSpec) -> dict[str, JSON]:
    """Return the fields that the model reads and that lose much precision in the dtype of the experiment; see `ROUNDED`."""
    found = rounded_fields(data_spec, shards.blocks())
    read = fields_read(model, data_spec) if found else frozenset()
    return {name: errors for name, errors in found.items() if name in read}


def _verified(layout: ExperimentLayout, manifest: GroupManifest, num_draws: int) -> list[ChainStore]:
    """Open the stores of a group's processes, rehash the files of their markers, and check that no draw is missing."""
    group, stores = layout.folder / manifest.folder, []
    folders = [process_folder(group, process) for process in range(manifest.num_processes)]
    gone = [folder for folder in folders if not folder.is_dir()]
    if gone:
        raise StoreError(f"{gone[0]}: the chains are missing", _SAMPLE if gone == folders else PROCESSES_REMEDY)
    for folder in folders:
        if not (folder / "store.json").is_file():
            raise StoreError(f"{folder / 'store.json'}: is missing", DAMAGE_REMEDY)
        store = ChainStore(folder, manifest.segment_draws, {"identity": manifest.identity})
        last = store.resume()
        if line := missing_draws(layout.sampled(group.name), manifest, folder, last):
            raise StoreError(line, DAMAGE_REMEDY)
        if last is None or last.num_draws < num_draws:
            raise StoreError(f"{folder}: fewer than {num_draws} draws are committed", _SAMPLE)
        stores.append(store)
    return stores


def _mark_saturated_trees(group: zarr.Group, identity: Path) -> None:
    """Write whether each tree reached its maximum depth, under the name that ArviZ reads, if the kernel builds trees.

    Args:
        group: statistics, with the depths of trees.
        identity: record with the settings of the chains.
    """
    most = read_checked(identity, _SAMPLE)["config"]["kernel"].get("max_tree_depth")
    if most is not None and isinstance(depths := group.get("tree_depth"), zarr.Array):
        write_array(group, "reached_max_treedepth", read_part(depths) >= most, dimension_names(depths))


def _start_of(processes: Sequence[Sequence[ChainStore]]) -> str:
    """Return the time at which the chains began, or the one that SOURCE_DATE_EPOCH gives, so that a repeated run gives the same bytes."""
    firsts = [store.commits()[0].all_facts[0] for of_group in processes for store in of_group]
    start = min(facts["committed_at"] - facts.get("seconds", 0.0) for facts in firsts)
    return datetime.fromtimestamp(float(os.environ.get("SOURCE_DATE_EPOCH", start)), UTC).isoformat()


def _known_hashes(stores: list[ChainStore]) -> dict[tuple[int, int], str]:
    """Return (device, inode) -> sha256 of the shards, which have just been hashed.

    Shards of a group's last commit are left out, because a job that adds draws replaces them.
    """
    commits = ((store.folder / DRAWS, commit) for store in stores for commit in store.commits()[:-1])
    known = (((draws / name).stat(), value) for draws, commit in commits for name, value in commit.shards.items())
    return {(about.st_dev, about.st_ino): value for about, value in known}


def _derive(
    job: Job, partial: Path, root: zarr.Group, model: Model, data: tuple[Shards, DataSpec]
) -> dict[str, GroupCoordinates]:
    """Compute and write summaries and pointwise groups; return the dimensions of each, to be written last."""
    (shards, data_spec), settings = data, job.posterior
    posterior, most_bytes = open_posterior(partial), settings.pointwise_mebibytes * 2**20
    drawn = {name: posterior.array("posterior", name) for name in posterior.latents}
    of_one = 3 if isinstance(shards, ReplicatedShards) else 2
    latents = {name: jax.ShapeDtypeStruct(array.shape[of_one:], array.dtype) for name, array in drawn.items()}
    # Also here, because a change of `summaries` or `predict` need not compile again.
    check_derived(job, model, data_spec, latents)
    if isinstance(shards, ReplicatedShards):
        derived = derive_datasets(model, data_spec, shards, posterior, settings.probe_rows)
    else:
        derived = derive(model, data_spec, shards, posterior, settings.probe_rows, most_bytes)
        truth = summaries_at_truth(model, data_spec, shards, posterior, settings.probe_rows)
        derived |= {TRUTH: truth} if truth else {}
        if is_compared(model, data_spec) and is_compared(model, shards.condensed().spec(job.compute.dtype)):
            rounding = likelihood_rounding(model, data_spec, shards, posterior)
            if rounding is not None:
                # JSON has no infinity.
                root.attrs[ROUNDED_LIKELIHOOD] = min(rounding, sys.float_info.max)
            if rounding is not None and model.has_fast_path():
                root.attrs[FAST_PATH] = f"{type(model).__name__}.log_likelihood_and_gradient"
        derived |= (
            {DETERMINISTICS: found} if (found := derive_deterministics(model, data_spec, shards, posterior)) else {}
        )
    fixed = derived.pop(FIXED)
    derived["summaries"]["log_density"] = np.asarray(posterior.array("sample_stats", "lp"))
    derived["summaries"]["log_likelihood"] = np.asarray(posterior.array("sample_stats", TOTAL))
    lead = [(DATASET, None)] if isinstance(shards, ReplicatedShards) else []
    cells = {} if lead else name_cells(model, data_spec, shards, settings.probe_rows)
    axes = model.axes()
    # Only here is it known how many entries a deterministic has.
    unfit = {
        name: tuple(
            axis and (axis.name, axis.labels if len(axis.labels or ()) == length else None)
            for axis, length in zip(axes[name], value.shape[2:], strict=False)
        )
        for name, value in derived.get(DETERMINISTICS, {}).items()
        if name in axes and name not in latents and name not in derived["summaries"]
    }
    constants = {**shards.constants, "num_rows": shards.num_observations}
    predictors: dict[str, np.ndarray] = {}
    if "observed_data" in derived:
        outcome = find_outcome(model, shards).name
        chosen = derived["observed_data"][ROW]
        predictors = _predictors(Shards(shards.path), shards.source_rows()[chosen], {outcome, *constants}, most_bytes)
        derived |= _derive_prior(job, BoundModel(model, data_spec, shards), posterior, latents, chosen)
        for name in derived.keys() & {*_POINTWISE}:
            derived[name][outcome if is_free(outcome) else "outcome"] = derived[name].pop("y")
        if len(chosen) < data_spec.num_rows:
            derived[SOME_ROWS] = derived.pop("log_likelihood")
    named = _write_derived(root, derived, {**axes, **unfit, **cells}, lead)
    for name, positions in fixed.items():
        root[f"summaries/{name}"].attrs[FIXED] = positions.tolist()
    if isinstance(shards, ReplicatedShards):
        _name_datasets(root, shards)
    group = root.require_group("constant_data")
    for name, value in constants.items():
        write_array(group, name, np.asarray(value), [])
    named["constant_data"] = GroupCoordinates({}, [*constants, *predictors])
    for name, values in predictors.items():
        if (about := shards.variables.get(name)) is not None and about.levels:
            write_texts(group, name, [about.levels[code] for code in values], [ROW])
        else:
            write_array(group, name, values, [ROW, *named["constant_data"].dims(name, values.shape[1:])])
    if predictors:
        write_array(group, ROW, chosen, [ROW])
    return named


def _derive_prior(
    job: Job, bound: BoundModel, posterior: Posterior, latents: Mapping[str, jax.ShapeDtypeStruct], rows: np.ndarray
) -> Derived:
    """Return the groups of the prior if the predictive check asks for it: the first of its draws, as many as fit.

    Args:
        job: specification of the stage.
        bound: model and data.
        posterior: whose number of draws is a limit too.
        latents: latent -> shape and dtype of one draw.
        rows: at which outcomes are simulated.
    """
    if (key := "predictive_checks") not in job.config:
        return {}
    of_draw = sum(each.size * each.dtype.itemsize for each in latents.values())
    fitting = int(job.posterior.pointwise_mebibytes * 2**20 / of_draw)
    num_draws = min(job.settings(key).draws, posterior.num_chains * posterior.num_draws, fitting)
    draws = PriorDraws(key, bound.model, bound.data_spec, num_draws).chunks()
    return derive_prior(*bound, draws, rows) if num_draws else {}


def name_cells(model: Model, data_spec: DataSpec, shards: Shards, probe_rows: int) -> NamedAxes:
    """Return axes of the summaries whose entries are probe rows that the levels of columns name."""
    source, numbers = Shards(shards.path), shards.source_rows()[spread_evenly(data_spec.num_rows, probe_rows)]
    found: dict[str, Sequence[NamedAxis]] = {}
    for summary, columns in check_described(model).cells.items():
        rows = _read_rows(source, numbers)
        levels = [[source.variables[name].levels[code] for code in rows[name]] for name in columns]
        found[summary] = [(" and ".join(columns), tuple(" · ".join(each) for each in zip(*levels, strict=True)))]
    return found


def _predictors(
    source: Shards, numbers: np.ndarray, others: Collection[str], most_bytes: float
) -> dict[str, np.ndarray]:
    """Return the fields of some rows of the source as they are stored, as far as they fit.

    Args:
        source: the rows as the source gives them.
        numbers: of the rows.
        others: names that are not those of predictors.
        most_bytes: limit on all fields together.
    """
    found, left = {}, most_bytes
    for name, values in _read_rows(source, numbers).items():
        if name not in others and is_free(name) and values.nbytes <= left:
            found[name], left = values, left - values.nbytes
    return found


def _read_rows(source: Shards, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the fields of some rows of the source, in the sequence of their numbers."""
    place = np.argsort(np.argsort(numbers))
    return {name: values[place] for name, values in source.read_chosen(np.sort(numbers)).items()}


def _name_datasets(root: zarr.Group, shards: ReplicatedShards) -> None:
    """Write the coordinate of the axis of datasets: names of levels, or the values of the field that tells them apart."""
    about = shards.variables.get(shards.replicates)
    for name in ("posterior", "sample_stats", "warmup_sample_stats", "summaries"):
        group = root.get(name)
        if not isinstance(group, zarr.Group):
            continue
        if about is not None and about.levels:
            write_texts(group, DATASET, shards.names, [DATASET])
        else:
            write_array(group, DATASET, shards.values, [DATASET])
        group[DATASET].attrs["field"] = shards.replicates


def _write_derived(
    root: zarr.Group,
    derived: Derived,
    axes: NamedAxes,
    lead: Sequence[NamedAxis],
) -> dict[str, GroupCoordinates]:
    """Write the groups with the coordinates of draws, and the rows of pointwise groups; return their other dimensions."""
    rows, named = derived.get("observed_data", {}).pop(ROW, None), {}
    for group_name_, arrays in derived.items():
        group = root.require_group(group_name_)
        named[group_name_] = GroupCoordinates(
            axes if group_name_ in ("prior", "summaries", DETERMINISTICS, TRUTH) else {}, arrays, lead
        )
        of_draws = () if group_name_ in ("observed_data", TRUTH) else (CHAIN, DRAW)
        of_rows = (ROW,) if group_name_ in (*_POINTWISE, SOME_ROWS) else ()
        for name, value in arrays.items():
            own = named[group_name_].dims(name, value.shape[len(of_draws + of_rows) :])
            write_array(group, name, value, [*of_draws, *of_rows, *own])
        for name, length in zip(of_draws, next(iter(arrays.values())).shape, strict=False):
            write_array(group, name, np.arange(length), [name])
        if of_rows and rows is not None:
            write_array(group, ROW, rows, [ROW])
    return named


def _attributes(job: Job, manifests: list[GroupManifest]) -> dict[str, JSON]:
    environment = manifests[0].environment
    stopped = {group_name(number): stop for number, m in enumerate(manifests) if (stop := m.stop)}
    groups: JSON = {name: {"num_draws": s["num_draws"], "reason": s["reason"]} for name, s in stopped.items()}
    rule = next((s["rule"] for s in stopped.values()), None)
    return {
        **({"stop": {"rule": rule, "groups": groups}} if stopped else {}),
        "creation_library": "bayesmesh",
        "creation_library_version": version("bayesmesh"),
        "experiment": job.experiment,
        "identity": manifests[0].identity,
        "model": job.model.name,
        "kernel": manifests[0].kernel,
        "device": environment["kind"],
        "mesh": environment["mesh"],
        "versions": {**environment["packages"], "bayesmesh": version("bayesmesh"), "python": platform.python_version()},
        "changed_environment": sorted({c for m in manifests for c in m.changed_environment}),
        "groups": [m.folder for m in manifests],
    }
