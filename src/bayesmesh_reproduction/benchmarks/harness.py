"""Measure contenders in separate processes, in turns, A B A B, with limits on time and memory.

A benchmark is a file or a package of `bayesmesh_reproduction.benchmarks` with a function ``run(options) -> Outcome``. Its
name is that of the file, and its docstring begins with a description; `python -m bayesmesh_reproduction benchmark NAME` finds it. A contender is
a class (see `bayesmesh_reproduction.benchmarks.worker`), named by a string, so that it is imported by the process that runs it::

    class Numpy:
        def prepare(self, case):  # outside of the clock: build, compile, warm up
            self.n = case["n"]
            return {"compile_s": 0.0, "platform": "cpu"}

        def run(self, repeat):  # timed; block until it is ready
            return {"checksum": float(numpy.arange(self.n).sum())}

    CONTENDERS = (Contender("numpy", f"{__name__}:Numpy"), Contender("ours", f"{__name__}:Ours", {"tile": 64}))

    def run(options: Options) -> Outcome:
        cases = [Case({"n": n}, CONTENDERS, series="n") for n in options.pick((10, 1000), quick=(10,))]
        measured = compare(cases, options.limits(rounds=5))
        rows = [m.row() for m in measured]  # n, contender, status, median_s, min_s, max_s, rounds, peak_mib, checksum ...
        return Outcome(rows, [ratio(measured, {"n": 1000}, "ours", against="numpy", least=2.0)])

A process serves all cases; if it was killed or failed, the next case starts another. Every case has a new object of the
class, and peak memory is reset. Within a ``series`` of growing cases, a contender that reached a limit skips larger cases,
and their rows say so. A contender that fails gives a row with ``failed`` and never ends the run.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh_reproduction.benchmarks.journal import Journal
from bayesmesh_reproduction.benchmarks.process import Contender, Ended, Process
from bayesmesh_reproduction.benchmarks.worker import Answer
from bayesmesh_reproduction.layout import BenchmarkLayout

_log = logging.getLogger("bayesmesh")

OK = "ok"


class Limits(NamedTuple):
    """Limits of rounds, time and memory.

    Attributes:
        rounds: turns of each contender.
        run_s: seconds of one run.
        prepare_s: seconds of one preparation, including the start of the process and its imports.
        case_s: seconds of all turns of a case; no round begins after it once `least_rounds` are done.
        least_rounds: rounds to run regardless of `case_s`.
        memory_mib: resident memory of a contender; no limit if None.
    """

    rounds: int = 5
    run_s: float = 60.0
    prepare_s: float = 120.0
    case_s: float = 300.0
    least_rounds: int = 2
    memory_mib: float | None = None


class Options(NamedTuple):
    """Options of `python -m bayesmesh_reproduction benchmark`, equal for all benchmarks.

    Attributes:
        is_quick: use small sizes, under a minute.
        seconds_limit: time limit of one run of a contender.
        layout: files of the benchmarks.
        only: the cases to measure, by the names that the benchmark gives them; empty for its own choice.
        journal: keeps measured cases for a run that continues; None keeps nothing.
    """

    is_quick: bool = False
    seconds_limit: float = 60.0
    layout: BenchmarkLayout = BenchmarkLayout(Path("results"))
    only: tuple[str, ...] = ()
    journal: Journal | None = None

    def pick[T](self, full: T, *, quick: T) -> T:
        """Return the first argument, or `quick` in a quick run."""
        return quick if self.is_quick else full

    def limits(self, **changes: Any) -> Limits:
        """Return limits with the user's time limit and further changes."""
        return Limits(run_s=self.seconds_limit)._replace(**changes)


class Case(NamedTuple):
    """One point of a benchmark.

    Attributes:
        values: plain values passed to the contenders; columns of the table.
        contenders: contenders in the order of their turns.
        series: name of a series of growing cases; empty for none.
        limits: limits of this case instead of the common ones; the memory limit is always the common one.
    """

    values: Mapping[str, object]
    contenders: Sequence[Contender]
    series: str = ""
    limits: Limits | None = None


@dataclasses.dataclass
class Measurement:
    """One contender in one case.

    Attributes:
        status: ``ok``, ``time limit``, ``memory`` or ``failed``.
        message: reason if the status is not ok.
        seconds: seconds of each round.
        facts: reported facts; over runs the median of numbers, and the last of others.
        peak_mib: peak resident memory since the case began, in MiB; NaN if not measured.
        versions: versions of its imports.
    """

    case: Mapping[str, Any]
    contender: str
    status: str = OK
    message: str = ""
    seconds: list[float] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    peak_mib: float = math.nan
    versions: str = ""

    def row(self) -> dict[str, object]:
        """Return a row of the benchmark's table; without a time the three columns of seconds are empty."""
        spread = (f(self.seconds) for f in (statistics.median, min, max)) if self.seconds else ()
        return {
            **self.case,
            "contender": self.contender,
            "status": self.status,
            **dict(zip_longest(("median_s", "min_s", "max_s"), spread, fillvalue="")),
            "rounds": len(self.seconds),
            "peak_mib": self.peak_mib,
            **self.facts,
            "message": self.message,
            "versions": self.versions,
        }

    def describe(self) -> str:
        """Return a line for the log."""
        seconds = f" {statistics.median(self.seconds):.4g} s" if self.seconds else ""
        reason = "" if self.status == OK else f" {self.status} ({self.message})"
        return f"{describe_case(self.case)}: {self.contender}{seconds}{reason}"


class Ratio(NamedTuple):
    """How many times faster a contender is than a baseline, and the required minimum.

    Attributes:
        ratio: median over the rounds of seconds of `against` over seconds of `contender`; NaN without a pair.
        low: smallest over the rounds.
        high: largest over the rounds.
        least: the gate; None without one.
        reason: why the gate cannot pass, whatever the ratio.
    """

    case: str
    contender: str
    against: str
    ratio: float
    low: float
    high: float
    rounds: int
    least: float | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """``holds`` or ``failed``, empty without a gate; an unmeasured ratio fails."""
        return "" if self.least is None else "holds" if self.ratio >= self.least and not self.reason else "failed"


class Outcome(NamedTuple):
    """Result of a benchmark.

    Attributes:
        rows: rows of ``results/benchmarks/<name>.csv``.
        ratios: rows of ``results/benchmarks/<name>-ratios.csv``, with or without gates.
        metrics: columns for the history, besides ``median_s`` and ``peak_mib``.
        files: other files that it wrote below the results, listed in the record of the table.
    """

    rows: list[dict[str, Any]]
    ratios: list[Ratio] = []  # noqa: RUF012 - never changed
    metrics: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


class _Pool:
    """Processes that live across cases."""

    def __init__(self, memory_mib: float | None) -> None:
        self._memory_mib, self._running = memory_mib, dict[str, Process]()

    def ask(self, contender: Contender, measurement: Measurement, limit_s: float, **request: object) -> Answer | None:
        """Return the answer; without one, record the reason in the measurement."""
        key = repr(contender)
        if key not in self._running:
            self._running[key] = Process(contender, self._memory_mib)
        try:
            answer = self._running[key].ask(request, limit_s)
        except Ended as ended:
            del self._running[key]
            measurement.status, measurement.message = ended.status, ended.message
            if not math.isnan(ended.peak_mib):
                measurement.peak_mib = ended.peak_mib
            return None
        measurement.peak_mib = answer["peak_mib"]
        return answer

    def close(self) -> None:
        for process in self._running.values():
            process.close()


def compare(cases: Sequence[Case], limits: Limits, journal: Journal | None = None) -> list[Measurement]:
    """Measure all cases; returns one measurement per case and contender, in order.

    Cases in the journal are not measured again, and the others are added to it as they end.
    """
    reached, found = dict[tuple[str, str], str](), list[Measurement]()
    with closing(_Pool(limits.memory_mib)) as pool:
        for case in cases:
            measured = [Measurement(case.values, contender.name) for contender in case.contenders]
            for m in measured:
                if case.series and (status := reached.get((case.series, m.contender))):
                    m.status, m.message = status, "not run: a smaller case reached the limit"
            about = (case.values, case.contenders, (case.limits or limits)._asdict())
            if journal and (kept := journal.find(*about)):
                measured = [Measurement(**each) for each in kept]
            else:
                _run_case(pool, case, list(zip(case.contenders, measured, strict=True)), case.limits or limits)
                if journal:
                    journal.add(*about, [dataclasses.asdict(m) for m in measured])
            for m in measured:
                _log.info("benchmark %s", m.describe())
                if case.series and m.status in ("time limit", "memory"):
                    reached[case.series, m.contender] = m.status
            found += measured
    return found


def _run_case(pool: _Pool, case: Case, measured: Sequence[tuple[Contender, Measurement]], limits: Limits) -> None:
    preparation = {"do": "prepare", "case": dict(case.values)}
    for contender, m in measured:
        if m.status == OK and (answer := pool.ask(contender, m, limits.prepare_s, **preparation)):
            m.facts, m.versions = answer["facts"], answer["versions"]
    begin, facts = time.monotonic(), [list[Mapping[str, object]]() for _ in measured]
    for repeat in range(limits.rounds):
        if repeat >= limits.least_rounds and time.monotonic() - begin > limits.case_s:
            break
        for (contender, m), of_runs in zip(measured, facts, strict=True):
            if m.status == OK and (answer := pool.ask(contender, m, limits.run_s, do="run", repeat=repeat)):
                m.seconds.append(answer["seconds"])
                of_runs.append(answer["facts"])
    for (_, m), of_runs in zip(measured, facts, strict=True):
        m.facts |= _middle(of_runs)


def _middle(of_runs: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Combine facts of several runs: the median of numbers, the last of other values.

    >>> _middle([{"a": 1, "b": "x"}, {"a": 5, "b": "y"}, {"a": 2, "b": "z"}])
    {'a': 2, 'b': 'z'}
    """
    found: dict[str, object] = {}
    for name in dict.fromkeys(name for facts in of_runs for name in facts):
        values: list[Any] = [facts[name] for facts in of_runs if name in facts]
        found[name] = statistics.median_low(values) if {*map(type, values)} <= {int, float} else values[-1]
    return found


def describe_case(case: Mapping[str, object]) -> str:
    """Return the values of a case as text, such as ``chains 1000, samples 10``."""
    return ", ".join(f"{name} {value}" for name, value in case.items())


def ratio(
    measured: Iterable[Measurement], case: Mapping[str, object], contender: str, *, against: str,
    least: float | None = None, fact: str = "",
) -> Ratio:  # fmt: skip
    """Return how many times faster one contender is than a baseline, round by round.

    Args:
        measured: all measurements.
        case: values that identify the case, or some of them.
        contender: the measured contender.
        against: the baseline, denominator of the ratio of rates.
        least: the gate.
        fact: compare this fact instead of seconds; there is one per contender, and more is better.
    """
    mine = {m.contender: m for m in measured if case.items() <= m.case.items()}
    ours, theirs = (mine.get(name, Measurement(case, name)) for name in (contender, against))
    # Only complete rounds, so that pairs ran under the same load.
    pairs = [b / a for a, b in zip(ours.seconds, theirs.seconds, strict=False)]
    if fact:
        pairs = [ours.facts[fact] / theirs.facts[fact]] if fact in ours.facts and fact in theirs.facts else []
    middle, low, high = (f(pairs) if pairs else math.nan for f in (statistics.median, min, max))
    return Ratio(describe_case(case), contender, against, middle, low, high, len(pairs), least)
