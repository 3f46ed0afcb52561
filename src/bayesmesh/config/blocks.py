"""The blocks of a configuration, one class per top-level key that does not depend on the registries, and the warmup settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.config.settings import Argument, Name, Settings, does_not_fit
from bayesmesh.errors import ConfigError, suggest


class DataSettings(Settings):
    """Keys that every source accepts in addition to its own options."""

    held_out_fraction: float = Field(0.0, ge=0, lt=1)
    """Share held out from the chains for evaluation: of the rows or, in a watch matrix, of each user's films (those cells
    then read 'not watched')."""
    split_seed: int = Field(0, ge=0, lt=2**32)
    """Seed of the held-out split."""
    held_out_groups: str | None = Field(None, examples=["school"])
    """Field, such as a school, whose values define groups: whole groups of rows are held out at random."""
    held_out_last: str | None = Field(None, examples=["day"])
    """Field, such as a time: the rows with its largest values are held out; rows with the same value stay together."""
    held_out_users: float = Field(0.0, ge=0, lt=1)
    """Share of the users of a watch matrix held out entirely and predicted from some of their films: a share
    `held_out_fraction` of each such user's films is scored, given the rest. The other users then keep all their films."""
    replicates: str | None = Field(None, min_length=1, examples=["dataset"])
    """Field whose values tell datasets apart. All datasets are sampled in one run, and each has a verdict."""
    left_out: LeftOut | None = None
    """Rows to leave out besides the held-out rows, which are then not used either. Written by analyses that refit."""

    @model_validator(mode="after")
    def _check_split(self) -> DataSettings:
        named = [key for key in ("held_out_groups", "held_out_last") if getattr(self, key) is not None]
        if self.replicates is not None and self.held_out_fraction:
            raise does_not_fit(
                "replicates", "rows are held out, which cannot be scored for many datasets", "remove held_out_fraction"
            )
        if self.replicates is not None and self.left_out is not None:
            raise does_not_fit("left_out", "not together with replicates", "remove one of the two")
        if len(named) == 2:
            raise does_not_fit(named[0], "not together with held_out_last", "remove one of the two")
        if self.held_out_users and not self.held_out_fraction:
            raise does_not_fit(
                "held_out_users",
                "none of their films are held out",
                "use\n    data:\n      held_out_users: 0.2\n      held_out_fraction: 0.2\n  or remove held_out_users",
            )
        if self.held_out_users and named:
            raise does_not_fit("held_out_users", f"not together with {named[0]}", "remove one of the two")
        if named and not self.held_out_fraction:
            raise does_not_fit(
                named[0], "nothing is held out", f"use\n    data:\n      held_out_fraction: 0.2\n  or remove {named[0]}"
            )
        return self


_EXAMPLE = "for example\n    sampling:\n      stop:\n        min_ess_bulk: 400\n        max_r_hat: 1.01"


class StopSettings(Settings):
    """Targets, monitored summaries, and numbers of draws at which to look; sampling ends when a look meets all targets.

    Reference:
        Glynn and Whitt 1992, "The asymptotic validity of sequential stopping rules for stochastic simulations",
        doi:10.1214/aoap/1177005777; Vats, Flegal and Jones 2019, "Multivariate output analysis for Markov chain Monte
        Carlo", doi:10.1093/biomet/asz002, for rules on the effective sample size.
    """

    min_ess_bulk: float | None = Field(None, gt=0, le=1e9, examples=[400.0])
    """Target: the smallest bulk effective sample size is at least this, in draws."""
    min_ess_tail: float | None = Field(None, gt=0, le=1e9, examples=[400.0])
    """Target: the smallest tail effective sample size is at least this, in draws."""
    max_r_hat: float | None = Field(None, gt=1, le=10, examples=[1.01])
    """Target: the largest R-hat is at most this (no unit). Needs at least two chains in a group."""
    max_mcse: dict[str, Annotated[float, Field(gt=0)]] | None = Field(None, min_length=1, examples=[{"beta[x]": 0.01}])
    """Target: summary -> largest Monte Carlo standard error of its mean, in the unit of the summary."""
    summaries: tuple[str, ...] | None = Field(None, min_length=1, examples=[["beta"]])
    """Summaries for R-hat and effective sample sizes; by default, all that the gates assess."""
    first_look: int = Field(100, ge=1, le=100_000_000)
    """Draws per chain at the first interim check. A check at n draws uses the first n draws of every chain."""
    growth: float = Field(1.5, ge=1.1, le=10)
    """Ratio of the numbers of draws at successive interim checks (no unit)."""
    max_seconds: float | None = Field(None, gt=0, le=1e9, examples=[3600.0])
    """Limit on the wall time of sampling over all runs, excluding warmup, in seconds; checked at each commit."""

    @model_validator(mode="after")
    def _check_targets(self) -> StopSettings:
        names = ("min_ess_bulk", "min_ess_tail", "max_r_hat", "max_mcse")
        if all(getattr(self, name) is None for name in names):
            raise does_not_fit("", f"no target; set at least one of {', '.join(names)}", _EXAMPLE)
        return self


class InitialSettings(Settings):
    """Where the chains start."""

    method: Literal["auto", "uniform", "prior", "zero", "mode", "laplace", "file", "model"] = "auto"
    """`uniform`: uniform between -2 and 2 in unconstrained space, however wide the prior. `prior`: a draw from the prior.
    `auto`: like `prior` if the prior is not much wider than this interval, if no uniform start is finite, or if the
    kernel must start from the prior (`tempered_smc`); otherwise like `uniform`. It avoids starts of low density. `zero`:
    the origin of unconstrained space plus `spread` noise. `mode`: every chain optimises with Adam from its own prior
    draw. `laplace`: some chains optimise in the same way from uniform starts, and all chains start at draws from the
    normal with the curvature at the highest mode found. `file`: the points in a file, taken in turn. `model`: points that
    the model computes from the data. `file` and `model` add `spread` noise in unconstrained space."""
    file: str | None = Field(None, min_length=1, examples=["data/starts.json"])
    """For `method: file`: a JSON or NPZ file with the values of every latent; its path is relative to the project. An extra
    leading axis holds several points. A changed file starts new chains."""
    spread: float = Field(1.0, ge=0, le=100)
    """Factor on the starting draw in unconstrained space (no unit), before any optimisation; 0 only for `file` and `model`."""
    climbers: int = Field(4, ge=1, le=1_000_000)
    """Maximum number of chains that optimise for `laplace`. If there are many modes, more chains find a higher one."""
    widening: float = Field(1.0, gt=0, le=100)
    """Factor on the distance of the `laplace` draws from the mode (no unit)."""
    curvature_at: Literal["mode", "draw"] = "mode"
    """Where `laplace` measures the curvature. `mode`: near the mode. `draw`: once more, at a draw from the normal found
    there; for coordinates that few rows inform, the curvature is then specific to that draw."""
    steps: int = Field(150, ge=1, le=100_000)
    """Number of Adam steps, for `mode` and `laplace`."""
    learning_rate: float = Field(0.05, gt=0, le=10)
    """Adam learning rate, for `mode` and `laplace`."""
    relative: Name = "auto"
    """Experiment whose chains these continue: half of them start at its draws, all with its step size and metric, and only the
    last part of warmup is made. `auto`: for a fold or another refit the experiment itself, for a member of a sweep that
    differs in numbers of the model or its priors the first member, otherwise none. `none`: all chains start as `method` says."""

    @model_validator(mode="after")
    def _check_points(self) -> InitialSettings:
        has_points = self.method in ("file", "model")
        if (self.method == "file") != (self.file is not None):
            problem = "names no file" if self.file is None else f"is not read with method '{self.method}'"
            raise does_not_fit(
                "file", problem, "use\n    sampling:\n      initial: {method: file, file: start.json, spread: 0.1}"
            )
        if self.spread == 0 and not has_points:
            raise does_not_fit(
                "spread",
                f"should be greater than 0 with method '{self.method}', found 0",
                "only points of a file or of the model are exact",
            )
        return self


class SamplingSettings(Settings):
    """Chains, draws and their randomness."""

    mode: Literal["independent", "sharded"] = "sharded"
    """`independent`: every chain group is a separate job; `sharded`: one job whose mesh spans all its devices."""
    chains: int = Field(4, ge=1, le=1_000_000)
    """Total number of chains."""
    chain_groups: int = Field(1, ge=1, le=10_000)
    """Number of jobs in `independent` mode; must divide `chains`."""
    warmup: int = Field(500, ge=0, le=10_000_000)
    """Warmup iterations per chain; never part of the posterior."""
    draws: int = Field(1000, ge=4, le=100_000_000)
    """Draws per chain after warmup; with `stop`, the maximum."""
    stop: StopSettings | None = None
    """Stopping rule: ends sampling before `draws`, at the first interim check that meets all targets. By default, there is none."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of all random numbers of the chains."""
    initial: InitialSettings = Field(InitialSettings())
    """Where the chains start."""
    segment_seconds: float = Field(60.0, ge=1e-6, le=3600)
    """Target time between two commits, in seconds; does not change the draws. A job killed without warning repeats at
    most this much."""
    grace_seconds: float = Field(20.0, ge=0, le=3600)
    """How long a job that is asked to stop (SIGTERM, SIGUSR1, SIGHUP, Ctrl-C) waits for its devices, in seconds. Must be less
    than the scheduler allows, 30 s by default on Slurm."""
    on_changed_environment: Literal["refuse", "accept"] = "refuse"
    """Whether to continue chains after a change of software, hardware or mesh; the run is then no longer bitwise
    reproducible."""

    @property
    def chains_per_group(self) -> int:
        """Number of chains of one program."""
        return self.chains // self.chain_groups


def check_chains(where: str, kernel: str, chains: int, least: int, multiple: int, groups: int = 1) -> None:
    """Refuse a number of chains that a kernel cannot take.

    Args:
        where: file or experiment, for the message.
        kernel: name of the kernel.
        chains: number of chains in a chain group.
        least: smallest number of chains that run together.
        multiple: the number of chains must be a multiple of it.
        groups: number of chain groups, for the remedy.

    Raises:
        ConfigError: a group has too few chains, or their number is not such a multiple.
    """
    if chains >= least and chains % multiple == 0:
        return
    needed = f"at least {least} chains" if chains < least else f"chains in groups of {multiple}"
    step = math.lcm(multiple, max(least, multiple)) * groups
    raise ConfigError(
        f"{where}: key 'sampling.chains': kernel '{kernel}' takes {needed}, and a chain group has {chains}",
        f"use for example\n    sampling:\n      chains: {math.ceil(chains * groups / step) * step}",
    )


def check_start(where: str, kernel: str, initial: InitialSettings) -> None:
    """Refuse starts other than prior draws for a kernel that requires prior draws.

    Raises:
        ConfigError: the starts are not prior draws.
    """
    if (initial.method, initial.spread) != ("prior", 1.0):
        raise ConfigError(
            f"{where}: key 'sampling.initial': kernel '{kernel}' starts from draws of the prior",
            "use\n    sampling:\n      initial: {method: prior}",
        )


def check_start_file(where: str, initial: InitialSettings) -> None:
    """Refuse a file of starts that does not exist.

    Raises:
        ConfigError: the file does not exist.
    """
    if initial.file is not None and not Path(initial.file).is_file():
        raise ConfigError(
            f"{where}: key 'sampling.initial.file': {initial.file}: no such file",
            f"correct the name; it is taken from the folder of the project, {Path.cwd()}",
        )


class MeshSettings(Settings):
    """The two axes over which a program is spread."""

    chain: int = Field(1, ge=1, le=65_536)
    """Devices over which the chains of one program are spread."""
    data: int = Field(1, ge=1, le=65_536)
    """Devices over which the rows of the data are spread."""


class ComputeSettings(Settings):
    """Devices, mesh and arithmetic."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """Device platform; `auto` uses JAX's own choice: TPU, else GPU, else CPU."""
    mesh: MeshSettings | Literal["auto"] = "auto"
    """Devices along `chain` and `data`. `auto` uses every device of the job, for rows if `sampling.mode` is `sharded`, else
    for chains. On a CPU, it uses a core for each 2.5 ms of the expected time of a gradient, or 0.2 ms if chains step independently (`nuts`)."""
    processes: int = Field(1, ge=1, le=65_536)
    """Processes that run one program together, each with its share of devices and rows. A launcher such as `srun`, or
    `bayesmesh sample --processes`, starts them."""
    sharding: Literal["named", "shard_map"] = "named"
    """How sums over devices are expressed: `named` leaves them to the compiler; `shard_map` writes them explicitly, one sum
    over `data` per gradient. Both give the same draws up to rounding."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of latents, data and gradients. Log densities are summed in float64 in either case."""
    matmul_precision: Literal["highest", "high", "default"] = "highest"
    """Precision of float32 matrix products. Less than `highest` makes trajectories diverge on TPU and recent GPUs."""
    row_tile: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Rows that one device processes at a time; limits the memory that the likelihood needs."""


class PosteriorSettings(Settings):
    """Limits on quantities that would otherwise grow with draws x observations."""

    probe_rows: int = Field(32, ge=1, le=10_000)
    """Number of evenly spaced rows at which the model's summaries (such as logits) are computed for all draws."""
    pointwise_mebibytes: float = Field(16.0, ge=0, le=65_536)
    """Limit on the size of each of the groups `log_likelihood`, `posterior_predictive` and `prior`, in MiB; the first two keep as many evenly spaced rows as fit. If these are not all rows, the first is named `log_likelihood_of_some_rows`."""


class Gate(Settings):
    """A limit, and the verdict if it is missed."""

    limit: float = Field(examples=[1.01])
    """The limit, in the unit of the statistic."""
    severity: Literal["fail", "warn"] = "fail"
    """Verdict if the limit is missed."""


class DivergenceGate(Gate):
    """A limit on divergences, and the verdict if it is missed."""

    isolated: Literal["fail", "warn"] = "fail"
    """For `divergences`: verdict if the limit is missed but at most one draw in 1,000 diverged; no worse than `severity`."""


def _gate(limit: float, text: str, gate: type[Gate] = Gate, **more: Any) -> Any:
    text = f"{text} A plain number is a limit with severity `fail`."
    return Field(gate(limit=limit, **more), description=text, examples=[{"limit": limit, "severity": "warn"}])


class GateSettings(Settings):
    """Gates on the model's identified summaries; a value that is not a number never passes."""

    r_hat: Gate = _gate(1.01, "Maximum rank-normalised split R-hat.")
    ess_bulk: Gate = _gate(400.0, "Minimum bulk effective sample size, in draws.")
    ess_tail: Gate = _gate(400.0, "Minimum tail effective sample size, in draws.")
    mcse_mean: Gate = _gate(0.1, "Maximum Monte Carlo standard error of a mean, in posterior standard deviations.")
    divergences: DivergenceGate = _gate(0.0, "Maximum share of divergent trajectories. By default, divergences in at most one draw in 1,000 only warn; a limit of your own is strict unless you set `isolated: warn`.", DivergenceGate, isolated="warn")  # fmt: skip
    bfmi: Gate = _gate(0.3, "Minimum Bayesian fraction of missing information of a chain.")
    max_coordinates: int | None = Field(None, ge=1, examples=[1000])
    """Maximum number of coordinates of each latent in summary.csv, evenly spaced if there are more; by default, all. Gates assess summaries, which are always listed in full."""
    efficiency: bool = False
    """For every coordinate, also list in efficiency.csv the effective sample sizes of quantiles and of small intervals, and the Monte Carlo errors of quantiles. The diagnostics then take about three times as long."""
    superchains: int | None = Field(None, ge=2, examples=[4])
    """Number of superchains: equally large groups of consecutive chains, each with a common starting point. efficiency.csv then has nested R-hat, which tells short chains from chains that disagree."""

    @field_validator("r_hat", "ess_bulk", "ess_tail", "mcse_mean", "divergences", "bfmi", mode="before")
    @classmethod
    def _accept_plain_number(cls, value: object) -> object:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"limit": float(value)}
        return value

    @model_validator(mode="after")
    def _check_limits(self) -> GateSettings:
        if self.superchains is not None and not self.efficiency:
            raise does_not_fit("superchains", "nothing is computed with them", "write\n    gates:\n      efficiency: true")  # fmt: skip
        for name, (least, most, why) in _POSSIBLE.items():
            limit = getattr(self, name).limit
            if not least <= limit <= most:
                raise does_not_fit(name, f"the limit {limit:g} cannot be: {why}", f"for example\n    gates:\n      {name}: {type(self).model_fields[name].default.limit:g}")  # fmt: skip
        return self


_POSSIBLE: dict[str, tuple[float, float, str]] = {
    "r_hat": (1.0, math.inf, "R-hat is 1 where chains agree, and more where they do not"),
    "ess_bulk": (0.0, math.inf, "effective sample sizes are positive"),
    "ess_tail": (0.0, math.inf, "effective sample sizes are positive"),
    "mcse_mean": (0.0, math.inf, "standard errors are positive"),
    "divergences": (0.0, 1.0, "it is a share of the trajectories, from 0 to 1"),
    "bfmi": (0.0, 2.0, "the fraction is about 1 where energies of successive draws are unrelated, and never above 2"),
}
"""Gate -> the smallest and the largest limit that can decide anything, and why."""


class ReportSettings(Settings):
    """Texts and limits of the page."""

    caption: str = Field("", max_length=4000, examples=["Counts of one season."])
    """A paragraph under the title of the page."""
    category: str = Field("Experiments", max_length=100)
    """Heading in Snakemake's own report."""
    num_traces: int = Field(6, ge=1, le=50)
    """Number of summaries whose traces are shown, worst first."""


_METRICS = Path(__file__).resolve().parent.parent / "kernels" / "hamiltonian" / "metrics"

METRICS = tuple(sorted(p.stem for p in _METRICS.glob("*.py") if p.stem not in ("__init__", "base", "auto")))
"""Names of all metrics: one file each."""

AUTO = "auto"
"""Name of the choice among them."""


def metric_path(name: str) -> Path:
    """Return the source file of a metric, or of the choice among them."""
    return _METRICS / f"{name}.py"


MetricName = Annotated[
    str,
    Field(
        description="How coordinates are scaled relative to each other. `identity` leaves them as they are. `diagonal` "
        "gives each the scale estimated in warmup. `low_rank` also rescales `metric_rank` directions. `dense` uses all "
        "correlations of at most 1,000 shared coordinates. `curvature` uses those of the normal from which chains start "
        "with `sampling.initial.method: laplace`. `auto` chooses by the number of coordinates and by where chains start.",
        json_schema_extra={"enum": [*METRICS, AUTO]},
    ),
]
"""Name of a metric: one of `METRICS`, or `AUTO`."""


class HamiltonianSettings(Settings):
    """Settings of the warmup of Hamiltonian kernels; a kernel's `Options` may give them other defaults."""

    target_acceptance: Argument[float] = Field(0.8, gt=0, lt=1, description="Target acceptance statistic for step size adaptation.")  # fmt: skip
    initial_step_size: Argument[float] = Field(0.1, gt=0, le=1e6, description="Step size at the first iteration, in units of the metric.")  # fmt: skip
    metric: MetricName = "diagonal"
    metric_rank: int = Field(64, ge=1, le=1024, description="Number of directions that `metric: low_rank` corrects; it learns them from twice as many points.")  # fmt: skip

    @model_validator(mode="after")
    def _check_metric(self) -> HamiltonianSettings:
        if self.metric not in (*METRICS, AUTO):
            raise does_not_fit("metric", f"unknown metric '{self.metric}'", suggest(self.metric, (*METRICS, AUTO)))
        return self


class RestartingSettings(HamiltonianSettings):
    """Settings of the warmup of Hamiltonian kernels that restart lost chains."""

    metric: MetricName = AUTO
    restart_lost_chains: bool = Field(True, description="Whether a chain that warmup finds in a mode of negligible mass restarts from the position of another chain.")  # fmt: skip
