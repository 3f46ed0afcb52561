"""The stopping rule: looks at committed draws and determines the number of draws of the run.

Its decision depends only on the configuration, the draws and the facts of the commits, so a run that was killed, or
whose rule changed, reaches the same decision from stored data.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bayesmesh.config.blocks import StopSettings
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.interim import evaluate_targets, look_numbers
from bayesmesh.files import write_json
from bayesmesh.models.base import Model
from bayesmesh.sampling.loop.monitor import STATISTICS, MonitoredSummaries
from bayesmesh.store.chains.manifests import Look, StopRecord, TargetEntry
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.posterior.axes import NamedAxes
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.checks import check_stop

MOST_SHARE, NOTICED_SECONDS = 0.02, 5.0
"""Looks are reported if they take more than this share of the sampling time and more than this many seconds."""

_SCOPE = "this chain group alone; the posterior keeps the draws of the shortest group"

_log = logging.getLogger("bayesmesh")


class StopRule:
    """Looks at a chain group during sampling.

    Args:
        settings: targets and draw counts of looks.
        limit: largest number of draws.
        monitored: summaries of the group's draws, in the order of evaluation, the cheapest first.
        store: the group's store.
        path: file ``looks.json``, rewritten after every look.
        axes: names of the entries of summaries.
    """

    def __init__(
        self,
        settings: StopSettings,
        limit: int,
        monitored: Sequence[MonitoredSummaries],
        store: ChainStore,
        path: Path,
        axes: NamedAxes | None = None,
    ) -> None:
        self._settings, self._limit, self._monitored, self._axes = settings, limit, monitored, axes
        self._store, self._path = store, path
        self._looks: list[Look] = []
        self.num_draws, self.reason = limit, ""

    @property
    def look_numbers(self) -> list[int]:
        """Draw counts of all looks up to the limit."""
        return look_numbers(self._settings.first_look, self._settings.growth, self._limit)

    def is_enough(self) -> bool:
        """Take the looks at committed draws that are due; return True to end sampling, before or at its limit of draws."""
        before = (len(self._looks), self.reason)
        pieces = _pieces(self._store)
        committed = pieces[-1][0] if pieces else 0
        out_of_time = self._out_of_time(pieces)
        last = min(n for n in (committed, self._limit, out_of_time) if n is not None)
        # The looks up to the last draw are the first ones of all up to the limit.
        for number in (n for n in self.look_numbers[len(self._looks) :] if n <= last):
            if not self._is_met:
                self._looks.append(self._look(number))
        if self._is_met:
            self.num_draws, self.reason = int(self._looks[-1]["draws"]), "met"
        elif committed >= last == self._limit:
            self.reason = "draws"
        elif out_of_time is not None:
            self.num_draws, self.reason = out_of_time, "seconds"
        if (len(self._looks), self.reason) != before:
            write_json(self._path, self.content())
        return self.reason != ""

    def content(self) -> StopRecord:
        """Return rule, looks and reason as plain JSON values.

        `reason` is ``met``, ``draws`` or ``seconds``, empty during sampling, when `num_draws` is the limit.
        """
        return {
            "rule": {**self._settings.model_dump(mode="json"), "draws": self._limit},
            "decided_by": _SCOPE,
            "looks": self._looks,
            "num_draws": self.num_draws,
            "reason": self.reason,
            "look_seconds": round(sum(look["seconds"] for look in self._looks), 6),
            "sampling_seconds": round(sum(seconds for _, seconds in _pieces(self._store)), 3),
        }

    def finish(self, ledger: Ledger) -> StopRecord:
        """Return `content` after sampling; add the time of the looks to the ledger and, if long, to the log."""
        content = self.content()
        spent, sampled = content["look_seconds"], content["sampling_seconds"]
        write_json(self._path, content)
        ledger.add("look", spent, detail=f"{len(self._looks)} looks during sample")
        if spent > max(MOST_SHARE * sampled, NOTICED_SECONDS):
            _log.warning(
                "looks took %.3g s of %.3g s of sampling; fewer summaries (sampling.stop.summaries) or a larger"
                " sampling.stop.growth make them cheaper", spent, sampled,
            )  # fmt: skip
        _log.info("stopped at %d draws, reason: %s", self.num_draws, self.reason)
        return content

    @property
    def _is_met(self) -> bool:
        return bool(self._looks) and bool(self._looks[-1]["is_met"])

    def _out_of_time(self, pieces: list[tuple[int, float]]) -> int | None:
        """Return the draws that were committed when the time limit was reached; None before."""
        totals = itertools.accumulate(seconds for _, seconds in pieces)
        limit = math.inf if self._settings.max_seconds is None else self._settings.max_seconds
        return next((stop for (stop, _), total in zip(pieces, totals, strict=True) if total >= limit), None)

    def _look(self, number: int) -> Look:
        """Return the values of a look; after a missed target, the remaining summaries are not evaluated."""
        start, is_met = time.perf_counter(), True
        draws: dict[str, np.ndarray] = {}
        fixed: dict[str, np.ndarray] = {}
        targets: list[TargetEntry] = []
        for part in self._monitored:
            if is_met:
                draws |= part.first(number)
                fixed |= part.fixed()
                targets = evaluate_targets(draws, self._settings, self._axes, fixed)
                is_met = all(target["is_met"] for target in targets)
        seconds = round(time.perf_counter() - start, 6)
        return {"draws": number, "seconds": seconds, "is_met": is_met, "judged": sorted(draws), "targets": targets}


def _pieces(store: ChainStore) -> list[tuple[int, float]]:
    """Return the commits in order: total draws, and the seconds of the last ones."""
    facts = [f for commit in store.commits() if commit.phase == "sample" for f in commit.all_facts]
    return [(int(f["first_new"]) + int(f["count"]), float(f["seconds"])) for f in facts]


def make_rule(job: Job, model: Model, data_spec: DataSpec, shards: Shards, store: ChainStore, path: Path) -> StopRule:
    """Return the rule of a sample stage, after taking the looks that are due for committed draws.

    Raises:
        ConfigError: the rule names a summary that the model lacks.
    """
    sampling = job.sampling
    assert sampling.stop is not None, "loaded where there is a rule"
    names = check_stop(job, model, data_spec)
    # The sampler's statistics are two numbers per draw, and often the slowest to mix.
    parts = [n for n in names if n in STATISTICS], [n for n in names if n not in STATISTICS]
    probe_rows = job.posterior.probe_rows
    monitored = [MonitoredSummaries(model, data_spec, shards, store.folder, part, probe_rows) for part in parts if part]
    for orphan in path.parent.glob(f".{path.name}.*"):
        orphan.unlink()
    rule = StopRule(sampling.stop, sampling.draws, monitored, store, path, model.axes())
    rule.is_enough()
    return rule
