"""The base class of every block of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

_Number = TypeVar("_Number", int, float)

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class _IsArgument:
    """Marks an option whose value is an argument of the compiled programs."""


Argument = Annotated[_Number, _IsArgument()]
"""``Argument[float]`` or ``Argument[int]``: a numeric option that changes no shape and is not compiled in."""


class _IsFiles:
    """Marks an option that names files which a source reads."""


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Files = Annotated[tuple[str, ...], BeforeValidator(_one_or_many), _IsFiles()]
"""Files, folders or patterns that a source reads, relative to the project; a single one need not be a list."""


class _IsCode:
    """Marks an option that names a function of the user's own package."""


CODE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"

CodeName = Annotated[str, Field(pattern=CODE_PATTERN), _IsCode()]
"""``module:attribute``: a function of the user's own package; its file is part of the component's code."""


NameOrCode = Annotated[str, _IsCode()]
"""A name that this package gives, or ``module:attribute`` of the user's own package."""


class Settings(BaseModel):
    """A block of the configuration: immutable; unknown keys and values of another type are errors.

    YAML has lists but no tuples, so a tuple field accepts a list. The string below a field is its description.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _take_lists_for_tuples(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        fields = cls.model_fields
        return {k: as_tuple(fields[k].annotation, v) if k in fields else v for k, v in values.items()}


NO_SOURCE: dict[str, Any] = {"use_attribute_docstrings": False}
"""Keywords of classes that have no source of their own: Pydantic would look for it in every file of the call stack."""


def describe(field: FieldInfo | None) -> str:
    """Return the description of a field in one line; empty without one."""
    return " ".join((field.description or "").split()) if field else ""


def blocks_in(annotation: object) -> list[type[Settings]]:
    """Return the classes of settings in a type: itself, or its arguments."""
    return [c for c in (annotation, *get_args(annotation)) if isinstance(c, type) and issubclass(c, Settings)]


def does_not_fit(key: str, problem: str, remedy: str) -> PydanticCustomError:
    """Return the error for conflicting keys; the user sees both texts unchanged.

    Args:
        key: the key within the block that is validated; empty for the block itself.
        problem: what is wrong.
        remedy: what to write instead.
    """
    return PydanticCustomError(
        "does_not_fit", "key '{key}': {problem}", {"key": key, "problem": problem, "remedy": remedy}
    )


def _not_a_number(value: object) -> object:
    if isinstance(value, int | float):
        remedy = "write the name of a column, in quotes if the name is a number; a constant needs a column of its own"
        raise does_not_fit("", f"{str(value).lower()} is not the name of a column", remedy)
    return value


ColumnName = Annotated[str, BeforeValidator(_not_a_number)]
"""A column of the table."""


def as_tuple(annotation: object, value: object) -> object:
    """Convert lists to tuples where the type is a tuple, at any depth.

    >>> as_tuple(tuple[tuple[int, ...], str] | None, [[1, 2], "a"]), as_tuple(list[int], [1])
    (((1, 2), 'a'), [1])
    >>> as_tuple(tuple, [1, [2]])
    (1, [2])
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not isinstance(value, list):
        return value
    if origin is Annotated:
        return as_tuple(arguments[0], value)
    if origin in (Union, UnionType):
        found = (as_tuple(arm, value) for arm in arguments)
        return next((each for each in found if isinstance(each, tuple)), value)
    if tuple not in (annotation, origin):
        return value
    inner = [arguments[0]] * len(value) if arguments[1:] == (...,) else [*arguments, *[object] * len(value)]
    return tuple(as_tuple(kind, item) for kind, item in zip(inner, value, strict=False))


def numeric_options(options: Settings) -> dict[str, float | int]:
    """Return the options that are arguments of a program, by name."""
    return {name: getattr(options, name) for name in _marked(type(options), _IsArgument)}


def file_options(options: Settings) -> dict[str, tuple[str, ...]]:
    """Return the options that name at least one file, by name."""
    return {name: value for name in _marked(type(options), _IsFiles) if (value := getattr(options, name))}


def code_names(options: type[Settings], values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield option and value of each given option that names a function.

    Args:
        options: class of the options.
        values: the options as they were written.

    >>> class Options(Settings, use_attribute_docstrings=False):
    ...     function: CodeName
    ...     other: CodeName | None = None
    ...     title: str = ""
    >>> list(code_names(Options, {"function": "mine:arma", "other": None, "title": "a:b"}))
    [('function', 'mine:arma')]
    """
    for name in _marked(options, _IsCode):
        if isinstance(value := values.get(name), str) and ":" in value:
            yield name, value


def _marked(options: type[Settings], mark: type) -> Iterator[str]:
    """Yield the options whose type, or a member of a union in it, carries a mark."""
    for name, field in options.model_fields.items():
        arms = [arm for arm in get_args(field.annotation) if get_origin(arm) is Annotated]
        marks = [*field.metadata, *(each for arm in arms for each in arm.__metadata__)]
        if any(isinstance(each, mark) for each in marks):
            yield name


def replace_options[S: Settings](options: S, values: Mapping[str, Any], dtype: Any) -> S:
    """Return options with some numbers replaced by arrays: floating-point ones in `dtype`, integers as they are."""
    if not values:
        return options
    cast = {k: v.astype(dtype) if v.dtype.kind == "f" else v for k, v in values.items()}
    return options.model_copy(update=cast)
