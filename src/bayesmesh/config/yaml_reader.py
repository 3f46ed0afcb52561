"""Read YAML as data: safe, with size limits, without duplicate keys, and with messages that name a remedy.

PyYAML speaks of tokens, scalars and block ends; messages do not.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from bayesmesh.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 20

EXAMPLE = """\
    title: My experiment
    data:
      source: gaussian
    model:
      name: gaussian
    kernel:
      name: hmc"""
"""The shortest experiment."""


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader with size limits, without aliases (they can expand exponentially) or duplicate keys.

    This is the Python loader; the C loader composes nodes itself and would bypass the checks. Plain words have their
    meaning in YAML 1.2: `1e-3` is a number, `no` and `010` are words.
    """

    nodes = 0
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark
            raise _refusal(mark, "aliases (*name) are not accepted", "repeat the value instead of the alias")
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            raise _refusal(
                self.peek_event().start_mark,
                f"more than {MAX_NODES} values or {MAX_DEPTH} levels",
                "keep data in files of their own, and name them here",
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            key, mark = self.construct_object(key_node, deep=True), key_node.start_mark
            if not isinstance(key, str):
                raise _refusal(mark, f"the key {key!r} is not a word", "put it between quotes, if it is meant as a key")
            if key in seen:
                problem = f"duplicate key '{key}', first given in line {seen[key]}"
                raise _refusal(mark, problem, "keep one of the two keys, or merge their values")
            if key.startswith("__"):
                raise _refusal(
                    mark, f"the key '{key}' is not accepted: configuration is data, never code", "remove the line"
                )
            seen[key] = mark.line + 1
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _refusal(mark: yaml.Mark, problem: str, remedy: str | None = None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark, note=remedy)


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def read_yaml(path: Path) -> dict[str, object]:
    """Return the mapping of a YAML file.

    Raises:
        ConfigError: missing, too large, not UTF-8, not YAML, not a mapping, with an alias, a tag, a duplicate key or
            a key that begins with two underscores; the message names file and line.
    """
    raw = _read_bounded(path)
    if not raw.strip():
        raise ConfigError(f"{path}: the file is empty", f"write keys and values into it, for example\n{EXAMPLE}")
    try:
        value = yaml.load(raw.decode("utf-8-sig"), Loader=_StrictLoader)  # noqa: S506 - a safe loader, made stricter
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text at byte {error.start}", "save the file as UTF-8, for example with iconv -t utf-8"
        ) from error
    except yaml.MarkedYAMLError as error:
        line, problem, remedy = _explain(error)
        raise ConfigError(f"{path}{f', line {line}' if line else ''}: {problem}", remedy) from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{path}: {error.reason} at character {error.position}", "remove the character") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", "correct the value, or put it between quotes") from error
    if not isinstance(value, dict):
        what = "nothing but comments" if value is None else type(value).__name__
        raise ConfigError(
            f"{path}: a configuration is a mapping of keys, but this is {what}", f"for example\n{EXAMPLE}"
        )
    return value


def _read_bounded(path: Path) -> bytes:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path}: not a regular file", "write a file of text in its place")
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", _whence(path)) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"{path}: more than the {MAX_BYTES} bytes that a configuration may have",
            "keep data in files of their own, and name them here",
        )
    return raw


def _whence(path: Path) -> str:
    """Return the remedy for an unreadable file."""
    other = next((p for p in (path.with_suffix(".yml"), path.with_suffix(".YAML")) if p.is_file()), None)
    if other is not None:
        return f"rename {other} to {path.name}"
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist; start in the folder of the project, which has config/"
    return "" if path.exists() else f"write {path}, or restore it from the project"


# -- what is wrong, in plain words -----------------------------------------------------------------------------------------

_COLUMNS = "begin all keys of a block in the same column, deeper than the key above them, with blanks and no tabs"
_QUOTES = "put the text between quotes, as in `title: 'at 9: a title'`"
_KEY = "write `key: value`, with a blank after the colon"

_SENTENCES: tuple[tuple[str, str, str], ...] = (
    (r"found character '\\t'", "a tab stands where blanks are needed", "replace the tab by blanks"),
    (r"found character '(.)' that cannot start", "a value cannot begin with {0}", _QUOTES),
    (r"expected ',' or '\]'", "the bracket [ that opens here is not closed", "close it with ], and put a comma between its entries"),
    (r"expected ',' or '\}'", "the brace {{ that opens here is not closed", "close it with }, and put a comma between its entries"),
    (r"found unexpected end of stream", "the quote that opens here is not closed", "close it with the same quote"),
    (r"found unexpected document", "the quote that opens here is not closed before a line `---`", "close it with the same quote"),
    (r"mapping values are not allowed", "a colon stands where no key can end", f"{_QUOTES}; or {_KEY}, in the line above too; or {_COLUMNS}"),
    (r"could not find expected ':'", "the line has no `key: value`", _KEY),
    (r"expected <block end>", "the line does not fit those above it", _COLUMNS),
    (r"unindent does not match|inconsistent", "the line does not fit those above it", _COLUMNS),
    (r"constructor for the tag 'tag:yaml.org,2002:(.*)'", "the tag !!{0} is not accepted: configuration is data, never code", "remove the word that begins with exclamation marks"),
    (r"constructor for the tag '(.*)'", "the tag {0} is not accepted: configuration is data, never code", "remove the word that begins with an exclamation mark"),
    (r"another document", "a second document begins, and a configuration is one", "remove the line `---` and what does not belong here"),
    (r"unknown escape character '(.*)'", "between double quotes, \\{0} means nothing", "use single quotes, which leave backslashes as they are"),
)  # fmt: skip
"""Pattern of a PyYAML problem -> what happened, and the remedy."""

_BEGINS_EARLIER = ("quote that opens", "bracket [", "brace {")


def _explain(error: yaml.MarkedYAMLError) -> tuple[int | None, str, str]:
    """Return the line, counted from 1, what is wrong there, and the remedy.

    Args:
        error: raised by PyYAML, or a refusal with a remedy in its `note`.

    >>> try:
    ...     yaml.safe_load("a: 1\\nb: [1, 2\\nc: 3")
    ... except yaml.MarkedYAMLError as error:
    ...     _explain(error)[:2]
    (2, 'the bracket [ that opens here is not closed')
    """
    problem, remedy, mark = str(error.problem), error.note or "", error.problem_mark
    for pattern, sentence, fitting in () if remedy else _SENTENCES:
        if found := re.search(pattern, problem):
            problem, remedy = sentence.format(*found.groups()), fitting
            break
    if error.context_mark is not None and any(words in problem for words in _BEGINS_EARLIER):
        mark = error.context_mark
    return (mark.line + 1 if mark else None), problem, remedy or f"{_KEY}; {_COLUMNS}"
