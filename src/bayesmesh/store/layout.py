"""Define every path under ``results/`` and every dimension name once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CHAIN, DRAW, ROW, DATASET = "chain", "draw", "row", "dataset"

DECLARED = "statistics"
"""Attribute of the group `sample_stats`: names of the statistics that the kernel declares."""

TOTAL = "total_log_likelihood"
"""Statistic of the posterior: the kernel's `log_likelihood`, a name under which ArviZ expects a value for each row."""

SOME_ROWS = "log_likelihood_of_some_rows"
"""Group that stands in for `log_likelihood` if not all rows fit, because ArviZ would take these rows for all."""

UNADJUSTED = "unadjusted"
"""Attribute of the group `sample_stats`: True if the kernel has no accept step."""

SHOWN = "shown"
"""Attribute of the root: findings that the page shows, in the form of `bayesmesh.models.base.Shown`."""

DESCRIBED = "described"
"""Attribute of the root: the model's description of itself, a `bayesmesh.store.posterior.description.ModelDescription`."""

EFFECTS, CURVES = "effects", "effect_curves"
"""Attributes of the root: what changes of predictors do, see `bayesmesh.analyses.effects.comparisons`, and the expected outcome along
each predictor, see `bayesmesh.analyses.effects.curves`."""

LEVEL_ROWS = "level_rows"
"""Attribute of the root: categorical column -> level -> its number of training rows."""

CHECKS = "checks"
"""Attribute of the root: names of the checks of the model's fit that model and data allow."""

ROUNDED = "rounded"
"""Attribute of the root: field that the model reads -> rounding by the experiment's dtype, in standard errors of the field's mean, for
fields that lose much to it."""

MOST_ROUNDED = 0.1
"""Most rounding of a field's values, in standard errors of its mean. A location parameter of these values has no finer steps than
the values themselves, and its posterior is about one standard error wide."""

ROUNDED_LIKELIHOOD = "rounded_log_likelihood"
"""Attribute of the root: difference of the log likelihood as sampled from its value in float64, in nats, as a standard deviation over
some draws; absent if it is sampled in float64 by the method with which it is compared, or for many datasets."""

FAST_PATH = "log_likelihood_by"
"""Attribute of the root: the model's own method by which the log likelihood was sampled, if there is one and it was compared."""

DETERMINISTICS = "deterministics"
"""Group of the quantities that a model stores with each draw, on which convergence is not assessed."""

FIXED = "fixed"
"""Attribute of a summary: flat positions of its entries that no latent changes, which gates leave out."""

POPULATIONS = "num_populations"
"""Attribute of the group of statistics: number of chain groups, if the chains of a group are one population; absent if chains are
independent."""

TRUTH = "truth"
"""Group of the summaries at the latents that generated simulated data."""


def group_name(group: int) -> str:
    """Return the folder name of a chain group.

    >>> group_name(3)
    'group-003'
    """
    return f"group-{group:03d}"


def process_folder(group: Path, process: int) -> Path:
    """Return the folder of one process of a chain group: the group's folder for the first, others beside it.

    >>> process_folder(Path("group-000"), 2).name
    'group-000-process-002'
    """
    return group if process == 0 else group.with_name(f"{group.name}-process-{process:03d}")


class DataLayout:
    """Files of one dataset, shared by all experiments that use it.

    Args:
        results: folder of all results.
        dataset: name made from source and options.
        split: name made from the held-out split.

    Attributes:
        folder: folder of the dataset.
        records: files from `fetch`: archives, array_record files.
        fetched: manifest of `fetch`.
        shards: Zarr group with the row shards.
        sharded: manifest of `shard`: counts and fingerprint.
    """

    def __init__(self, results: Path, dataset: str, split: str = "") -> None:
        self.results = results
        self.folder = results / "data" / dataset
        self.records = self.folder / "records"
        self.fetched = self.folder / "fetched.json"
        self.shards = self.folder / split / "shards.zarr"
        self.sharded = self.folder / split / "sharded.json"


class ExperimentLayout:
    """Files of one experiment.

    Args:
        results: folder of all results.
        experiment: name of the experiment.

    Attributes:
        folder: folder of the experiment.
        ledger: table of all jobs and phases.
        audit: facts of the compile stage about the programs.
        chains: chains of all identities, and the manifests of the current ones.
        posterior: Zarr store of all chains.
        posterior_hashes: sha256 of every file of the posterior; results made from it refer to this list.
        summary, verdict: outputs of `diagnose`.
        verdicts: one row for each dataset, of an experiment with many.
        page: the report.
        settings: settings of an experiment that a notebook requested, and that therefore has no configuration file.
    """

    def __init__(self, results: Path, experiment: str) -> None:
        self.results, self.experiment = results, experiment
        self.folder = results / experiment
        self.settings = self.folder / "experiment.yaml"
        self.ledger = self.folder / "ledger.csv"
        self.audit = self.folder / "program" / "audit.json"
        self.chains = self.folder / "chains"
        self.posterior = self.folder / "posterior.zarr"
        self.posterior_hashes = self.posterior.with_suffix(".sha256")
        self.summary = self.folder / "diagnostics" / "summary.csv"
        self.verdict = self.folder / "diagnostics" / "verdict.json"
        self.verdicts = self.folder / "diagnostics" / "verdicts.csv"
        self.efficiency = self.folder / "diagnostics" / "efficiency.csv"
        self.page = self.folder / "report.html"

    def spec(self, stage: str) -> Path:
        """Frozen settings of the last run of a stage."""
        return self.folder / "specs" / f"{stage}.json"

    def ledger_part(self, job: str) -> Path:
        """Phases of one job, one JSON object per line."""
        return self.folder / "ledger" / f"{job}.json"

    def identity(self, identity: str) -> Path:
        """Folder of one chain identity; it never contains files of another identity."""
        return self.chains / identity

    def identity_record(self, identity: str) -> Path:
        """Record shared by all chain groups of an identity: its configuration and the length of a segment."""
        return self.identity(identity) / "identity.json"

    def group(self, identity: str, group: int) -> Path:
        """Folder of one chain group."""
        return self.identity(identity) / group_name(group)

    def looks(self, identity: str, group: int) -> Path:
        """Looks of the stopping rule at a chain group."""
        return self.group(identity, group) / "looks.json"

    def sampled(self, group: str) -> Path:
        """Manifest of one sampled chain group, written last."""
        return self.chains / f"{group}.json"

    def read_by(self, words: Iterable[str], data: DataLayout | None) -> list[Path]:
        """Return the files of the experiment and of its data that an analysis reads, given the words of its declaration."""
        files = {
            "posterior": [self.posterior],
            "data": [data.sharded] if data else [],
            "verdict": [self.summary, self.verdict],
        }
        return [file for word in words for file in files[word]]


class NotebookLayout:
    """Files that experiments of notebooks read.

    Attributes:
        code: packages with the code of cells, one per experiment; on the Python path of their jobs.
        inputs: tables and arrays that were given as objects, named after their content.
    """

    def __init__(self, results: Path) -> None:
        self.code = results / "notebook" / "code"
        self.inputs = results / "notebook" / "inputs"


class SweepLayout:
    """Files of a sweep; those of its members are in folders of their own.

    Args:
        results: folder of all results.
        sweep: name of the sweep.

    Attributes:
        table: numbers of all members, one row per member and quantity.
        page: comparison of the members.
    """

    def __init__(self, results: Path, sweep: str) -> None:
        self.results, self.sweep = results, sweep
        self.folder = results / sweep
        self.table = self.folder / "comparison.csv"
        self.page = self.folder / "comparison.html"


class ComparisonLayout:
    """Files of a comparison of experiments by their pointwise scores.

    Args:
        results: folder of all results.
        name: name of the comparison.

    Attributes:
        table: one row per experiment, and one per average over them.
        page: page of the comparison.
    """

    def __init__(self, results: Path, name: str) -> None:
        self.results, self.name = results, name
        self.folder = results / "comparisons"
        self.table = self.folder / f"{name}.csv"
        self.page = self.folder / f"{name}.html"
