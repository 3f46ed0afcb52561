"""Read the declarations of components from their source text: `offers`, and the attributes of an analysis.

Nothing is imported, so that parsing the Snakefile needs no array library. Declarations must therefore be literals.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from bayesmesh.config.refit_settings import Refits
from bayesmesh.config.registry import component_path, list_components, options_class, parse_classes
from bayesmesh.config.settings import CODE_PATTERN, Settings
from bayesmesh.errors import ConfigError, suggest

STAGE_NAMES = frozenset({"fetch", "shard", "compile", "sample", "assemble", "diagnose", "report"})
"""The stages before and after the analyses: their rules and verbs."""

TARGET_NAMES = frozenset({"all", "quickstart", "comparisons", "data", "logs", "index", "notebook", "seals", "sweep"})
"""Targets and rules of the workflow, and folders beside those of the experiments."""

OWN_VERB = "analyse"
"""Verb of the command line that runs the analyses of users' packages, which have no verbs of their own."""

OTHER_VERBS = frozenset({
    OWN_VERB, "check", "compare", "describe", "doctor", "export", "gc", "init", "new", "predict", "run", "schema", "status", "verify",
})  # fmt: skip
"""Verbs of the command line that are neither stages nor targets."""

OWN_KEY = "analyses"
"""Key of an experiment for analyses of users' packages; a shipped analysis is a key by itself."""

EXPERIMENT_FOLDERS = frozenset({"chains", "diagnostics", "ledger", "logs", "program", "specs"})
"""Folders of an experiment that do not belong to an analysis."""

Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Output = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}\.(csv|json|svg|zarr)$")]


class AnalysisDeclaration(Settings):
    """Declarations of an analysis class; `bayesmesh.analyses.base.Analysis` documents each attribute.

    `name` is that of its file or folder, or ``module:attribute`` of a user's package.
    """

    name: Word | Annotated[str, Field(pattern=CODE_PATTERN)]
    path: Path
    pretty_name: str = Field(min_length=1)
    outputs: tuple[Output, ...] = Field(min_length=1)
    verb: Word
    folder: Word
    message: str
    reads: tuple[Literal["posterior", "data", "verdict"], ...] = ("posterior", "data")
    needs_of_source: tuple[Word, ...] = ()
    needs_of_model: tuple[Word, ...] = ()
    checks_model: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it belongs to a user's package."""
        return ":" in self.name

    @property
    def stage(self) -> str:
        """Name of its stage, from which planning finds it: its verb, or ``module:attribute``."""
        return self.name if self.is_own else self.verb

    @property
    def command(self) -> str:
        """The verb of the command line that runs it."""
        return OWN_VERB if self.is_own else self.verb

    @property
    def key(self) -> str:
        """The key with which an experiment asks for it."""
        return key_of(self.name)

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
        return sorted(self.path.parent.glob("*.html")) if self.path.stem == "analysis" else []

    @property
    def caption(self) -> Path | None:
        """Caption of the first output in Snakemake's own report."""
        return self._beside("caption.rst")

    def _beside(self, name: str) -> Path | None:
        path = self.path.with_name(name)
        return path if self.path.stem == "analysis" and path.is_file() else None


def list_analyses() -> list[AnalysisDeclaration]:
    """Return the analyses of this package, sorted by name; those with a mistake are missing, which only experiments that request them are told."""
    found = []
    for name in list_components("analysis"):
        with contextlib.suppress(ConfigError):
            found.append(declared(name))
    return found


def key_of(name: str) -> str:
    """Return the key with which an experiment asks for an analysis.

    >>> key_of("some_analysis"), key_of("my_study.tails:Tails")
    ('some_analysis', 'analyses.my_study.tails:Tails')
    """
    return f"{OWN_KEY}.{name}" if ":" in name else name


def declared(name: str) -> AnalysisDeclaration:
    """Return the declarations of an analysis.

    Raises:
        ConfigError: no such analysis; a declaration is missing or not a literal; or a name is taken.
    """
    return _declared(name, component_path("analysis", name))


@functools.cache
def _declared(name: str, path: Path) -> AnalysisDeclaration:
    node = _class_of(name, path)
    found = {k: v for k, v in _literals(node).items() if k in AnalysisDeclaration.model_fields}
    word = _snake_case(name.partition(":")[2]) or name
    pretty_name = word.replace("_", " ").capitalize()
    values = {"pretty_name": pretty_name, "verb": word, "folder": word, **{k: value for k, (value, _) in found.items()}}
    values.setdefault("message", f"{values['pretty_name']} of {{experiment}}")
    try:
        declaration = AnalysisDeclaration.model_validate({**values, "name": name, "path": path})
    except ValidationError as error:
        key, problem = str(error.errors()[0]["loc"][0]), error.errors()[0]["msg"]
        line = f", line {found[key][1]}" if key in found else f": class {node.name}"
        remedy = "write it out, as docs/contracts/analysis.md says"
        raise ConfigError(f"{path}{line}: {key}: {problem}", remedy) from error
    if declaration.outputs[0].endswith(".zarr"):
        remedy = 'for example `outputs = ("scores.csv", "draws.zarr")`'
        raise ConfigError(f"{path}, line {found['outputs'][1]}: outputs: the first must be a file", remedy)
    _check_names(declaration)
    return declaration


def _class_of(name: str, path: Path) -> ast.ClassDef:
    """Return the class of an analysis as a syntax tree: the named one, or the one that derives from `Analysis`."""
    if attribute := name.partition(":")[2]:
        found = next((node for node in parse_classes(path) if node.name == attribute), None)
        if found is None:
            raise ConfigError(
                f"'{name}': {path} has no class {attribute}",
                suggest(attribute, [node.name for node in parse_classes(path)]),
            )
        return found
    classes = [node for node in parse_classes(path) if any(getattr(b, "id", "") == "Analysis" for b in node.bases)]
    if len(classes) != 1:
        raise ConfigError(f"{path}: {len(classes)} classes derive from Analysis; define exactly one")
    return classes[0]


def _snake_case(name: str) -> str:
    """Return the class name of an analysis in snake case, as the name of a folder.

    >>> _snake_case("TailIndex"), _snake_case("LOOByGroupAnalysis"), _snake_case("tails")
    ('tail_index', 'loo_by_group', 'tails')
    """
    plain = name.removesuffix("Analysis") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower().strip("_")


def _check_names(declaration: AnalysisDeclaration) -> None:
    """Refuse names that are taken: rules, verbs and outputs of an analysis are named after it.

    Raises:
        ConfigError: a name is taken; the message names the file and the attribute.
    """
    verbs, folders = STAGE_NAMES | TARGET_NAMES | OTHER_VERBS, EXPERIMENT_FOLDERS
    another = "write another one in the class, for example"
    rows = [
        ("verb", declaration.verb, verbs, f'{another} `verb = "run_{{}}"`'),
        ("folder", declaration.folder, folders, f'{another} `folder = "my_{{}}"`'),
    ]
    if not declaration.is_own:
        rows = [
            ("name", declaration.name, verbs | folders, "rename the file or its folder, for example to my_{}"),
            *rows,
        ]
    for attribute, value, reserved, remedy in rows:
        if value in reserved:
            problem = f"the {attribute} '{value}' belongs to a stage, a target, a verb or a folder of the workflow"
            raise ConfigError(f"{declaration.path}: {problem}", remedy.format(value))
    for other in list_analyses() if declaration.is_own else ():
        for attribute, value, _, remedy in rows:
            if value in (other.name, other.verb, other.folder):
                problem = f"the {attribute} '{value}' belongs to the analysis '{other.name}' of bayesmesh"
                raise ConfigError(f"{declaration.path}: {problem}", remedy.format(value))


def _literals(node: ast.ClassDef) -> dict[str, tuple[object, int]]:
    """Return attribute -> value and line for the assignments of a class; the value is None if it is not a literal.

    An annotation alone assigns nothing.
    """
    found: dict[str, tuple[object, int]] = {}
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            try:
                value = ast.literal_eval(statement.value)
            except (TypeError, ValueError):
                value = None
            found |= {each.id: (value, statement.lineno) for each in targets if isinstance(each, ast.Name)}
    return found


# -- what sources and models offer ----------------------------------------------------------------------------------------


@functools.cache
def offer_words() -> list[str]:
    """Return the valid entries of ``offers``: those that some analysis needs."""
    return sorted({word for each in list_analyses() for word in (*each.needs_of_source, *each.needs_of_model)})


def read_offers(kind: str, name: str) -> tuple[str, ...] | None:
    """Return ``offers`` of a source or model class, read from its source text.

    None if the file does not assign it: the class may inherit it, or leave the decision to the compile stage.

    Raises:
        ConfigError: ``offers`` is not a tuple of words, or a word is not one of `offer_words`.
    """
    declared = _assigned_once(kind, name, "offers")
    if declared is None:
        return None
    path, (offers, line), valid = component_path(kind, name), declared, offer_words()
    where = f"{path}, line {line}: offers"
    if not isinstance(offers, tuple) or not all(isinstance(word, str) for word in offers):
        example = f'for example `offers = ("{valid[0] if valid else "word"}",)`, or `()`'
        raise ConfigError(f"{where}: should be a tuple of words, written out", example)
    for word in offers:
        if word not in valid:
            raise ConfigError(f"{where}: unknown word '{word}'", suggest(word, valid))
    return offers


def read_conditions(kind: str, name: str, words: Collection[str]) -> dict[str, str]:
    """Return option -> the value that it must have for some of ``offers``, from ``offers_only_with`` of the class.

    The attribute is a literal such as ``{"averaging": {"task": "classification"}}``; a class without it has no conditions.
    """
    declared, _ = _assigned_once(kind, name, "offers_only_with") or ({}, 0)
    if not isinstance(declared, dict):
        return {}
    given_of = [given for word in words if isinstance(given := declared.get(word), dict)]
    return {option: value for given in given_of for option, value in given.items()}


def read_trait[T: int](kind: str, name: str, trait: str, default: T) -> T:
    """Return a number or a truth value that the class of a component assigns, read from its source text.

    It is the default if the class assigns none, or no literal of the default's type.
    """
    value, _ = _assigned_once(kind, name, trait) or (default, 0)
    return value if type(value) is type(default) else default


def read_mirror_files(name: str) -> tuple[str, ...]:
    """Return ``mirror_files`` of a source class, read from its source text: files below the mirror, by pattern.

    Raises:
        ConfigError: it is not a literal tuple of strings.
    """
    value, line = _assigned_once("source", name, "mirror_files") or ((), 0)
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        where = f"{component_path('source', name)}, line {line}: mirror_files"
        raise ConfigError(f"{where}: should be a tuple of texts, written out", 'for example `("mnist/*.gz",)`')
    return value


def read_image_shape(name: str) -> tuple[int, int] | None:
    """Return ``image_shape`` of a source class, read from its source text: rows and columns of the image in ``features``.

    None if the class does not assign it, or not as two integers.
    """
    value, _ = _assigned_once("source", name, "image_shape") or (None, 0)
    is_shape = isinstance(value, tuple) and len(value) == 2 and all(type(length) is int for length in value)
    return value if is_shape else None  # type: ignore[return-value]


def has_refits(analysis: str) -> bool:
    """Return whether an analysis compares with refits; that of a user's own package, whether its class ``Options`` says so."""
    if ":" not in analysis:
        return issubclass(options_class("analysis", analysis), Refits)
    options = _options_of("analysis", analysis)
    return options is not None and any(_mentions(base, "Refits", "Folds") for base in options.bases)


def read_file_options(source: str, given: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the options of a user's source that name files, read from the source text: those of the type `Files`.

    Args:
        source: ``module:attribute``.
        given: the options as they were written; others have the defaults of the class, if these are literals.
    """
    options = _options_of("source", source)
    if options is None:
        return {}
    fields = [node for node in options.body if isinstance(node, ast.AnnAssign) and _mentions(node.annotation, "Files")]
    names = [node.target.id for node in fields if isinstance(node.target, ast.Name)]
    defaults = {name: value for name, (value, _) in _literals(options).items()}
    values = {name: given.get(name, defaults.get(name)) for name in names}
    # A value of another type is an error that `fetch` reports.
    lists = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    return {name: tuple(map(str, each)) for name, each in lists.items() if isinstance(each, (list, tuple)) and each}


def _options_of(kind: str, name: str) -> ast.ClassDef | None:
    return next((node for node in parse_classes(component_path(kind, name)) if node.name == "Options"), None)


def _mentions(node: ast.AST, *names: str) -> bool:
    return any(getattr(each, "id", getattr(each, "attr", None)) in names for each in ast.walk(node))


def _assigned_once(kind: str, name: str, attribute: str) -> tuple[object, int] | None:
    """Return value and line of an attribute if exactly one class of a component's file assigns it, else None."""
    class_name = name.partition(":")[2]
    classes = [_literals(node) for node in parse_classes(component_path(kind, name)) if class_name in ("", node.name)]
    found = [literals[attribute] for literals in classes if attribute in literals]
    return found[0] if len(found) == 1 else None
