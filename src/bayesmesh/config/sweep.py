"""Make the members of a sweep: experiments of one file that differ in some settings."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from bayesmesh.config.errors import validate
from bayesmesh.config.settings import NAME_PATTERN, Settings, does_not_fit
from bayesmesh.errors import ConfigError

MOST_CHARACTERS = 64
"""Length of an experiment's name, see `NAME_PATTERN`."""

_TITLE, _LONGEST_WORD = 200, 24
"""Length of a title, and of a list in a name."""

_EXAMPLE = "for example\n    sweep:\n      grid:\n        sampling.seed: [1, 2, 3]"


class SweepSettings(Settings):
    """Members of a sweep: all combinations of `grid`, each with every entry of `cases`."""

    grid: dict[str, list[Any]] = Field({}, examples=[{"model.prior_scale": [0.1, 1]}])
    """Dotted key -> list of values, such as `model.prior_scale: [0.1, 1]`; every combination is a member."""
    cases: list[dict[str, Any]] = Field([], examples=[[{"name": "wide", "model.prior_scale": 10}]])
    """Settings that belong together, as mappings of dotted keys to values; the key `name` names a case."""
    quantities: list[str] = Field([], examples=[["beta[x]"]])
    """Quantities that the page compares, named as in `diagnostics/summary.csv`, such as `logits[0,3]`; by default, the
    scalar summaries and the first few others."""
    max_members: int = Field(500, ge=1, le=100_000)
    """Maximum number of members; more are refused."""

    @model_validator(mode="after")
    def _check(self) -> SweepSettings:
        if not self.grid and not self.cases:
            raise does_not_fit("", "has no members", f"give `grid` or `cases`, {_EXAMPLE}")
        for block, keys in [("grid", self.grid), *((f"cases[{n}]", case) for n, case in enumerate(self.cases))]:
            for key in keys:
                if key.partition(".")[0] in _FIXED or not all(key.split(".")) or (key == "name" and block == "grid"):
                    remedy = "name a key of the experiment, such as model.prior_scale"
                    raise does_not_fit(f"{block}.{key}", "cannot be swept", remedy)
            if block != "grid" and not set(keys) - {"name"}:
                raise does_not_fit(block, "has no settings", "give it at least one key of the experiment")
        for key, values in self.grid.items():
            if not values:
                raise does_not_fit(f"grid.{key}", "has no values", "list at least one value, or remove the key")
        if both := sorted(set(self.grid) & {key for case in self.cases for key in case}):
            raise does_not_fit(f"grid.{both[0]}", "is also a key of `cases`", "give it in one of the two")
        if self.num_members > self.max_members:
            raise does_not_fit(
                "", f"has {self.num_members} members, more than max_members, {self.max_members}",
                f"shorten the lists, or write\n    sweep:\n      max_members: {self.num_members}",
            )  # fmt: skip
        return self

    @property
    def num_members(self) -> int:
        """Number of combinations."""
        return math.prod(map(len, self.grid.values())) * max(1, len(self.cases))


_FIXED = ("sweep", "title")
"""Keys that do not make a member a different experiment."""


class Sweep(NamedTuple):
    """A sweep and its members.

    Attributes:
        title: heading of its page.
        category: heading in the index.
        quantities: quantities that its page compares; empty for the default.
        members: name -> settings that it varies.
    """

    title: str
    category: str
    quantities: tuple[str, ...]
    members: dict[str, dict[str, Any]]


def load_members[E: Settings](
    path: Path, content: Mapping[str, Any], check: Callable[[Path, Mapping[str, Any]], E]
) -> tuple[dict[str, E], Sweep]:
    """Return the members of the sweep in a file, as name -> experiment, and the sweep.

    Args:
        path: the file.
        content: its keys, with `sweep`.
        check: returns the experiment of some keys and values.

    Raises:
        ConfigError: see `make_members`; or the sweep or a member is not valid, a key leads into a value, or two members are
            identical.
    """
    settings = validate(path, SweepSettings, content["sweep"], under="sweep")
    shared = {key: value for key, value in content.items() if key != "sweep"}
    experiments: dict[str, E] = {}
    found: dict[str, str] = {}
    members = make_members(path, settings)
    for name, varied in members.items():
        label = f"member '{name}' ({describe_settings(varied)})"
        own = _with_settings(path, name, shared, varied)
        try:
            experiment = experiments[name] = check(path, own)
        except ConfigError as error:
            raise ConfigError(f"{path}: {label}: {error.message.removeprefix(f'{path}: ')}", error.remedy) from error
        same = found.setdefault(experiment.model_dump_json(exclude={"title"}), name)
        if same != name:
            raise ConfigError(f"{path}: key 'sweep': {label} is the same experiment as '{same}'", "remove one of them")
    first: Any = next(iter(experiments.values()))
    title = str(shared.get("title", path.stem))
    return experiments, Sweep(title, first.report.category, tuple(settings.quantities), members)


def make_members(path: Path, settings: SweepSettings) -> dict[str, dict[str, Any]]:
    """Return name -> settings that it varies, for the members of a sweep, in the order in which they are written.

    Args:
        path: the file, whose name begins the names of its members.
        settings: the sweep.

    Raises:
        ConfigError: two members would have the same name, or a name is too long.
    """
    labels = _labels(list(dict.fromkeys(key for block in (settings.grid, *settings.cases) for key in block)))
    members: dict[str, dict[str, Any]] = {}
    for number, case in enumerate(settings.cases or [{}]):
        for choice in itertools.product(*map(enumerate, settings.grid.values())):
            together = {} if "name" in case else {key: (number, value) for key, value in case.items()}
            varied = {**together, **dict(zip(settings.grid, choice, strict=True))}
            words = [(labels[key], _word(value) or str(position + 1)) for key, (position, value) in varied.items()]
            name = _name(path, case.get("name"), words)
            if name in members:
                raise ConfigError(
                    f"{path}: key 'sweep': two members would be named '{name}'",
                    "list each value once; tell others apart as `cases`, each with a `name`",
                )
            given = {key: value for key, value in case.items() if key != "name"}
            given |= {key: value for key, (_, value) in varied.items()}
            members[name] = given
    return members


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as text.

    >>> describe_settings({"model.prior_scale": 0.1, "kernel": {"name": "nuts"}})
    'model.prior_scale: 0.1, kernel: {name: nuts}'
    """
    return ", ".join(f"{key}: {value_text(value)}" for key, value in settings.items())


def split_key(key: str) -> list[str]:
    """Return the words of a dotted key; ``module:attribute`` is one, although the name of a module may have dots.

    >>> split_key("model.prior_scale"), split_key("analyses.my_study.tails:Tails.level")
    (['model', 'prior_scale'], ['analyses', 'my_study.tails:Tails', 'level'])
    """
    own = re.match(r"analyses\.[^:]+:[^.]+", key)
    if own is None:
        return key.split(".")
    return [*own[0].split(".", 1), *key[own.end() :].split(".")[1:]]


def value_text(value: object) -> str:
    """Return a value as YAML would show it in one line."""
    match value:
        case None | bool():
            return json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{k}: {value_text(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value_text, value)) + "]"
    return str(value)


def _labels(keys: Sequence[str]) -> dict[str, str]:
    """Return key -> its last words, as many as distinguish it from the others; a name stands for its block.

    >>> _labels(["model.prior_scale", "kernel.name", "sampling.initial.steps", "kernel.steps"])
    {'model.prior_scale': 'prior_scale', 'kernel.name': 'kernel', 'sampling.initial.steps': 'initial-steps', 'kernel.steps': 'kernel-steps'}
    """
    parts = {key: split_key(key) for key in keys}
    parts = {
        key: words[:-1] if words[-1] in ("name", "source") and words[:-1] else words for key, words in parts.items()
    }

    def is_distinct(key: str, length: int) -> bool:
        return sum(words[-length:] == parts[key][-length:] for words in parts.values()) == 1

    lengths = {
        key: next((n for n in range(1, len(parts[key])) if is_distinct(key, n)), len(parts[key])) for key in keys
    }
    return {key: "-".join(_clean(word) for word in parts[key][-lengths[key] :]) for key in keys}


def _word(value: object) -> str:
    """Return a value as part of a name; empty if only its position can name it.

    >>> [_word(value) for value in (0.1, -2, 1e-5, True, None, "A b", "mine:Model", [8, 8], {"name": "nuts"}, {}, ".")]
    ['0p1', 'minus2', '1e-05', 'true', 'none', 'a-b', 'model', '8-8', 'nuts', '', '']
    """
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int() | float():
            text = str(value) if isinstance(value, int) else f"{value:.12g}"
            return re.sub("^-", "minus", text).replace(".", "p").replace("+", "")
        case str():
            return _clean(value.rpartition(":")[2])
        case Mapping():
            return _word(value.get("name", value.get("source", "")))
        case list():
            words = [_word(each) for each in value]
            return "-".join(words) if all(words) and len("-".join(words)) <= _LONGEST_WORD else ""
    return ""


def _clean(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-_")


def _name(path: Path, case: object, words: Sequence[tuple[str, str]]) -> str:
    """Return the name of a member, without the keys if it would be too long with them."""
    start = [path.stem, *([] if case is None else [str(case)])]
    whole = "-".join([*start, *(f"{label}-{word}" for label, word in words)])
    short = "-".join([*start, *(word for _, word in words)])
    name = whole if len(whole) <= MOST_CHARACTERS else short
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(
            f"{path}: key 'sweep': '{name}' is not a valid name for a member: names match {NAME_PATTERN}",
            "give the settings as `cases`, each with a short `name`, or the file a shorter name",
        )
    return name


def _with_settings(path: Path, member: str, content: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with some keys set, blocks before the keys in them."""
    made = dict(content)
    for key, value in sorted(settings.items(), key=lambda item: item[0].count(".")):
        *blocks, last = split_key(key)
        block = made
        for part in blocks:
            inner = block.get(part) or {}
            if not isinstance(inner, Mapping):
                raise ConfigError(
                    f"{path}: member '{member}': key '{key}': '{part}' is {value_text(inner)}, which has no keys",
                    f"sweep over `{key.partition(part)[0]}{part}` with whole mappings, or write it as a mapping",
                )
            block[part] = inner = dict(inner)
            block = inner
        block[last] = value
    if "title" in made:
        varied = f"{made['title']}: {describe_settings(settings)}"
        made["title"] = varied if len(varied) <= _TITLE else varied[: _TITLE - 1] + "…"
    return made
