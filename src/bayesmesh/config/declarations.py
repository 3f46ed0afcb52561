"""Read the declarations of components from their source text: `offers`, and the attributes of an analysis.

Nothing is imported, so that parsing the Snakefile needs no array library. Declarations must therefore be literals.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.config.registry import component_path, list_components, parse_classes, read_options
from bayesmesh.errors import ConfigError, suggest

__all__ = [
    "READABLE",
    "AnalysisDeclaration",
    "analysis_of_verb",
    "declared",
    "list_analyses",
    "offer_words",
    "read_offers",
]

READABLE = ("posterior", "data", "verdict")
"""Possible inputs of an analysis: draws; shards and the model; the tables of the diagnose stage."""

_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}")
_FILE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.(csv|json|svg|zarr)")


class AnalysisDeclaration(NamedTuple):
    """Declarations of an analysis class; `bayesmesh.analyses.base.Analysis` documents each attribute."""

    name: str
    path: Path
    pretty_name: str
    outputs: tuple[str, ...]
    verb: str
    folder: str
    message: str
    reads: tuple[str, ...]
    needs_of_source: tuple[str, ...]
    needs_of_model: tuple[str, ...]
    names_others: bool

    def files(self, experiment_folder: Path) -> dict[str, Path]:
        """Return output -> its path below the folder of an experiment."""
        return {name: experiment_folder / self.folder / name for name in self.outputs}

    def needs(self, kind: str) -> tuple[str, ...]:
        """Return the entries that a ``source`` or a ``model`` must list in ``offers``."""
        return self.needs_of_source if kind == "source" else self.needs_of_model

    @property
    def section_file(self) -> Path:
        """The source file of the section: ``section.py`` of a folder, or the file of the analysis."""
        return self._beside("section.py") or self.path

    @property
    def templates(self) -> list[Path]:
        """HTML templates of a folder."""
        return sorted(self.path.parent.glob("*.html")) if self._is_folder else []

    @property
    def caption(self) -> Path | None:
        """Caption of the first output in Snakemake's own report."""
        return self._beside("caption.rst")

    @property
    def _is_folder(self) -> bool:
        return self.path.stem == "analysis"

    def _beside(self, name: str) -> Path | None:
        path = self.path.with_name(name)
        return path if self._is_folder and path.is_file() else None


def list_analyses() -> list[AnalysisDeclaration]:
    """Return all analyses, sorted by name."""
    return [declared(name) for name in list_components("analysis")]


def analysis_of_verb(verb: str) -> AnalysisDeclaration:
    """Return the analysis with a given verb.

    Raises:
        ConfigError: no analysis has the verb.
    """
    verbs = {each.verb: each for each in list_analyses()}
    if verb not in verbs:
        raise ConfigError(f"no analysis has the verb '{verb}'", suggest(verb, verbs))
    return verbs[verb]


def declared(name: str) -> AnalysisDeclaration:
    """Return the declarations of an analysis.

    Raises:
        ConfigError: no such analysis, or a declaration is missing or not a literal.
    """
    return _declared(name, component_path("analysis", name))


@functools.cache
def _declared(name: str, path: Path) -> AnalysisDeclaration:
    classes = [
        node for node in parse_classes(path) if "Analysis" in {b.id for b in node.bases if isinstance(b, ast.Name)}
    ]
    if len(classes) != 1:
        raise ConfigError(f"{path}: {len(classes)} classes derive from Analysis; an analysis is exactly one")
    found = _Literals(path, classes[0])
    pretty_name = found.text("pretty_name", name.replace("_", " ").capitalize())
    declaration = AnalysisDeclaration(
        name=name,
        path=path,
        pretty_name=pretty_name,
        outputs=found.words("outputs", None, _FILE),
        verb=found.text("verb", name, _WORD),
        folder=found.text("folder", name, _WORD),
        message=found.text("message", f"{pretty_name} of {{experiment}}"),
        reads=found.words("reads", ("posterior", "data"), valid=READABLE),
        needs_of_source=found.words("needs_of_source", (), _WORD),
        needs_of_model=found.words("needs_of_model", (), _WORD),
        names_others="experiments" in read_options(path).model_fields,
    )
    if not declaration.outputs or declaration.outputs[0].endswith(".zarr"):
        raise ConfigError(
            f"{path}: outputs: the first output must be a file", 'for example `outputs = ("scores.csv",)`'
        )
    return declaration


class _Literals:
    """Attributes of a class with literal values."""

    def __init__(self, path: Path, node: ast.ClassDef) -> None:
        self._path = path
        self._values: dict[str, ast.stmt] = {}
        for statement in node.body:
            self._values |= dict.fromkeys(_names_assigned(statement), statement)

    def text(self, name: str, default: str, pattern: re.Pattern[str] | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
            raise self._wrong(
                name, f"should be text, written out{f', that matches {pattern.pattern}' if pattern else ''}"
            )
        return value

    def words(
        self,
        name: str,
        default: tuple[str, ...] | None,
        pattern: re.Pattern[str] | None = None,
        valid: Sequence[str] | None = None,
    ) -> tuple[str, ...]:
        value = self._value(name, default)
        if not isinstance(value, tuple) or not all(isinstance(word, str) for word in value):
            raise self._wrong(name, 'should be a tuple of words, written out, for example `("a",)`, or `()`')
        for word in value:
            if pattern and not pattern.fullmatch(word):
                raise self._wrong(name, f"{word!r} should match {pattern.pattern}")
            if valid is not None and word not in valid:
                raise self._wrong(name, f"unknown word '{word}'", suggest(word, valid))
        return value

    def _value(self, name: str, default: Any) -> Any:
        statement = self._values.get(name)
        if statement is None:
            if default is None:
                raise ConfigError(
                    f"{self._path}: the class of the analysis lacks `{name}`", "see docs/contracts/analysis.md"
                )
            return default
        return _literal(statement)

    def _wrong(self, name: str, problem: str, remedy: str = "") -> ConfigError:
        return ConfigError(f"{self._path}, line {self._values[name].lineno}: {name}: {problem}", remedy)


def _names_assigned(statement: ast.stmt) -> list[str]:
    """Return the names that a statement assigns; an annotation alone assigns none."""
    if isinstance(statement, ast.Assign):
        targets: Iterable[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        targets = []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _literal(statement: ast.stmt) -> Any:
    """Return the value of an assignment, None if it is not a literal."""
    try:
        return ast.literal_eval(statement.value)  # type: ignore[attr-defined]
    except ValueError:
        return None


# -- what sources and models offer ----------------------------------------------------------------------------------------


def offer_words() -> list[str]:
    """Return the valid entries of ``offers``: those that some analysis needs."""
    return sorted({word for each in list_analyses() for word in (*each.needs_of_source, *each.needs_of_model)})


def read_offers(kind: str, name: str) -> tuple[str, ...] | None:
    """Return ``offers`` of a source or model class, read from its source text.

    None if the file does not assign it: the class may inherit it, or leave the decision to the compile stage.

    Raises:
        ConfigError: ``offers`` is not a tuple of words, or a word is not one of `offer_words`.
    """
    path, attribute = component_path(kind, name), name.partition(":")[2]
    statements = [
        statement
        for node in parse_classes(path)
        if attribute in ("", node.name)
        for statement in node.body
        if "offers" in _names_assigned(statement)
    ]
    if len(statements) != 1:
        return None
    offers, where = _literal(statements[0]), f"{path}, line {statements[0].lineno}: offers"
    if not isinstance(offers, tuple) or not all(isinstance(word, str) for word in offers):
        example = f'for example `offers = ("{next(iter(offer_words()), "word")}",)`, or `()`'
        raise ConfigError(f"{where}: should be a tuple of words, written out", example)
    for word in offers:
        if word not in offer_words():
            raise ConfigError(f"{where}: unknown word '{word}'", suggest(word, offer_words()))
    return offers
