"""`config/claims.yaml`: the published figures, and where in the results ours is read.

Every value is data: a file below the folder of results, a column and a filter, or the name of a computation that the
project has. Nothing in the file is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from bayesmesh.config.explain import explain
from bayesmesh.config.settings import Name, Settings, does_not_fit
from bayesmesh.config.yaml_reader import read_yaml
from bayesmesh.errors import ConfigError, suggest

__all__ = [
    "WITNESSES",
    "Claim",
    "ClaimSettings",
    "Claims",
    "ClaimsFile",
    "MeasureSettings",
    "NumberSettings",
    "load_claims",
]

Witness = Literal[
    "best_film_entropy", "device_sums", "equation_counts", "hidden_markov", "logistic_gradient", "same_density",
    "softmax_accuracy", "watch_matrix",
]  # fmt: skip

WITNESSES: tuple[str, ...] = get_args(Witness)
"""Names of the computations in `bayesmesh.reproduction.claims.witnesses`."""

Statistic = Literal[
    "only",
    "last",
    "mean",
    "sd",
    "min",
    "max",
    "sum",
    "count",
    "distinct",
    "spread",
    "slope",
    "variance",
    "entropy",
    "shape",
]

Kind = Literal["exact", "statistical", "hardware", "shape"]

EXAMPLE = """\
    sources:
      tutorial:
        title: A tutorial
    claims:
      T1:
        source: tutorial
        statement: what it says
        kind: hardware
        numbers:
          seconds:
            published: "1.5"
            unit: s
            hardware: not stated
            measure: {file: benchmarks/primer.csv, column: median_s}"""


class SourceSettings(Settings):
    """A published piece."""

    title: str = Field(min_length=1, description="Author, title, year.")
    url: str = Field("", pattern=r"^(https://\S+)?$", description="Where it is.")


class MeasureSettings(Settings):
    """Where a number comes from: a file of results, a named computation, or two numbers combined."""

    file: str | None = Field(None, description="File below the folder of results: .csv, .json or a .zarr store.")
    where: dict[str, str | int | float | list[str]] = Field(
        {}, description="Column -> value that a row of a table must have, or a list of texts of which it must have one."
    )
    column: str | None = Field(None, description="Column of a table, or group/name of an array in a store.")
    against: str | None = Field(None, description="Column that a slope is taken over, both in their logarithms.")
    statistic: Statistic = Field(
        "only",
        description="What is made of several values; only: there must be one. spread is largest over smallest.",
    )
    path: tuple[str | int, ...] = Field((), description="Keys into a JSON file, or position of one entry of an array.")
    witness: Witness | None = Field(None, description="A computation on stored arrays.")
    experiment: Name | None = Field(None, description="Experiment that a witness reads.")
    which: str = Field("", description="Which of the numbers that a witness finds.")
    ratio: PairSettings | None = Field(None, description="Quotient of two numbers.")
    difference: PairSettings | None = Field(None, description="Difference of two numbers.")

    @model_validator(mode="after")
    def _check_one(self) -> MeasureSettings:
        combined = [key for key in ("witness", "ratio", "difference") if getattr(self, key) is not None]
        if (
            len(combined) > 1
            or (self.file is None and not combined)
            or (self.file and combined not in ([], ["witness"]))
        ):
            raise does_not_fit(
                "file", "a measure is one of: file, witness, ratio, difference", "keep one of these keys, and its own"
            )
        if self.file is not None:
            place = PurePosixPath(self.file)
            if place.is_absolute() or ".." in place.parts or place.suffix not in (".csv", ".json", ".zarr"):
                raise does_not_fit(
                    "file", f"{self.file!r:.80} is no table or store below the results",
                    "write a path such as mnist/diagnostics/summary.csv, relative to the folder of results",
                )  # fmt: skip
            if place.suffix in (".csv", ".zarr") and self.column is None and self.witness is None:
                raise does_not_fit("column", "a table or store needs one", "add\n    column: ...")
            if place.suffix == ".json" and not self.path:
                raise does_not_fit("path", "a JSON file needs one", "add\n    path: [key, ...]")
        if (self.statistic == "slope") != (self.against is not None):
            raise does_not_fit(
                "against", "a slope has it, and nothing else has", "add\n    statistic: slope\n    against: ..."
            )
        return self

    def files(self) -> Iterator[str]:
        """Yield the files that the number is read from, with those of what it is combined of."""
        if self.file is not None:
            yield self.file
        if self.experiment is not None:
            yield f"{self.experiment}/posterior.sha256"
        for pair in (self.ratio, self.difference):
            if pair is not None:
                yield from pair.of.files()
                yield from pair.to.files()


class PairSettings(Settings):
    """Two numbers: `of` over `to`, or `of` less `to`."""

    of: MeasureSettings = Field(description="The first number.")
    to: MeasureSettings = Field(description="The second number.")


MeasureSettings.model_rebuild()


class NumberSettings(Settings):
    """One number of a claim."""

    published: str = Field(min_length=1, description="As printed, in quotes; its digits count.")
    kind: Kind | None = Field(None, description="How this number is held against it, where not like the others.")
    unit: str = Field("", description="Unit of both numbers.")
    hardware: str = Field("", description="What the published number was measured on.")
    measure: MeasureSettings = Field(description="Where ours comes from.")
    witness: MeasureSettings | None = Field(
        None, description="The same number computed a second way, out of stored arrays; ours must agree with it."
    )
    agreement: float = Field(1e-5, gt=0, le=1, description="Relative difference from the witness that is let pass.")
    mcse: MeasureSettings | None = Field(None, description="Monte Carlo standard error of ours.")
    sigmas: float = Field(4.0, gt=0, le=10, description="Standard errors by which ours may differ from the published.")
    tolerance: float | None = Field(None, ge=0, description="Difference from the published that is let pass.")
    at_least: float | None = Field(None, description="Ours must not be below.")
    at_most: float | None = Field(None, description="Ours must not be above.")
    resolution: float = Field(
        0.0, ge=0, description="What the printed digits are uncertain by, where more were printed than the dtype holds."
    )


class ClaimSettings(Settings):
    """What all numbers of a claim share."""

    source: str = Field(description="One of `sources`.")
    statement: str = Field(min_length=1, description="What is claimed.")
    kind: Kind = Field(description="How ours is held against it.")
    source_errors: tuple[str, ...] = Field((), description="What is wrong in the source.")


class ClaimBlock(ClaimSettings):
    """A claim as the file has it."""

    numbers: dict[str, NumberSettings] = Field(min_length=1, description="Name -> one number of the claim.")


class ClaimsFile(Settings):
    """`config/claims.yaml`; checked block by block, for messages that name claim and number."""

    sources: dict[str, SourceSettings] = Field(min_length=1, description="Name -> a published piece.")
    claims: dict[str, ClaimBlock] = Field(min_length=1, description="Name -> a claim.")


class Claim(Settings):
    """A claim with its name and its numbers."""

    name: str
    source: SourceSettings
    about: ClaimSettings
    numbers: dict[str, NumberSettings]

    def kind_of(self, number: str) -> Kind:
        """Return how a number is held against ours."""
        return self.numbers[number].kind or self.about.kind

    def files(self) -> list[str]:
        """Return the files that the claim is judged by, sorted."""
        found: set[str] = set()
        for number in self.numbers.values():
            for measure in (number.measure, number.witness, number.mcse):
                found |= set(measure.files()) if measure is not None else set()
        return sorted(found)


Claims = tuple[Claim, ...]


def load_claims(path: Path) -> Claims:
    """Return the claims of a file, in its order.

    Raises:
        ConfigError: see `read_yaml`; or an unknown, missing or wrong key, named with its claim and number.
    """
    whole = read_yaml(path)
    if unknown := [key for key in whole if key not in ("sources", "claims")]:
        raise ConfigError(f"{path}: unknown key '{unknown[0]}'", suggest(unknown[0], ("sources", "claims")))
    sources = {n: _validate(path, f"sources.{n}", SourceSettings, v) for n, v in _mapping(path, "sources", whole)}
    return tuple(_claim(path, name, value, sources) for name, value in _mapping(path, "claims", whole))


def _claim(path: Path, name: str, value: Any, sources: Mapping[str, Any]) -> Claim:
    where = f"claims.{name}"
    given = dict(_mapping(path, where, {where: value}))
    numbers = dict(_mapping(path, f"{where}.numbers", {f"{where}.numbers": given.pop("numbers", None)}))
    about = _validate(path, where, ClaimSettings, given)
    if about.source not in sources:
        raise ConfigError(f"{path}: key '{where}.source': no source '{about.source}'", suggest(about.source, sources))
    read = {}
    for key, number in numbers.items():
        at = f"{where}.numbers.{key}"
        read[key] = _validate(path, at, NumberSettings, number)
        _check_kind(path, at, read[key].kind or about.kind, read[key])
    return Claim(name=name, source=sources[about.source], about=about, numbers=read)


def _check_kind(path: Path, where: str, kind: str, number: NumberSettings) -> None:
    """Refuse a claim that no result could make fail, or whose number nothing could tell from one typed in."""
    has_limits = number.at_least is not None or number.at_most is not None
    if kind in ("exact", "statistical") and number.witness is None and not _is_computed(number.measure):
        raise ConfigError(
            f"{path}: key '{where}.witness' is missing: a number of kind {kind} is computed a second time",
            f"add a measure that comes from stored arrays: a .zarr store, or one of {', '.join(WITNESSES)}",
        )
    if kind == "shape" and not has_limits:
        raise ConfigError(f"{path}: key '{where}.at_least' is missing: a shape has a limit", "add at_least or at_most")
    if kind == "statistical" and not has_limits and number.tolerance is None and number.mcse is None:
        raise ConfigError(
            f"{path}: key '{where}.tolerance' is missing: a statistical number has an interval",
            "add tolerance, mcse, at_least or at_most",
        )
    if kind == "hardware" and not number.hardware:
        raise ConfigError(f"{path}: key '{where}.hardware' is missing", "add\n    hardware: not stated")


def _is_computed(measure: MeasureSettings) -> bool:
    """Whether a measure comes from stored arrays."""
    return measure.witness is not None or (measure.file is not None and measure.file.endswith(".zarr"))


def _mapping(path: Path, key: str, whole: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    value = whole.get(key)
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{path}: key '{key}' should be a mapping with something in it", f"for example\n{EXAMPLE}")
    return iter(value.items())


def _validate[T: Settings](path: Path, where: str, kind: type[T], value: Any) -> T:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise explain(path, error, kind, under=where) from error
