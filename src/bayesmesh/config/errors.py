"""Turn pydantic's errors into one message: the key as written by the user, the problem, and the remedy."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, NamedTuple, Union, get_args, get_origin

from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from bayesmesh.config.registry import BLOCKS, list_components
from bayesmesh.config.settings import NAME_PATTERN, Settings, blocks_in, describe
from bayesmesh.errors import ConfigError, suggest


class Place(NamedTuple):
    """Position of an error in a configuration.

    Attributes:
        keys: keys as written by the user, outermost first; an item of a list is ``key[index]``.
        owner: block that contains the last key.
    """

    keys: list[str]
    owner: type[Settings]

    @property
    def key(self) -> str:
        return ".".join(self.keys)


def locate(cls: type[Settings], loc: Sequence[int | str]) -> Place:
    """Follow a location from pydantic through a settings class, dropping labels of unions, which are not keys.

    >>> from bayesmesh.config.experiment import ExperimentBase
    >>> locate(ExperimentBase, ("compute", "mesh", "MeshSettings", "chian")).key
    'compute.mesh.chian'
    """
    keys: list[str] = []
    owner, expected = cls, _arms(cls)
    for part in loc:
        if len(expected) > 1:
            expected = {part: expected[part]} if part in expected else {}
        elif isinstance(part, int) and keys:
            keys[-1] += f"[{part}]"
            expected = {}
        else:
            keys.append(str(part))
            of_values = [get_args(arm)[1] for arm in expected.values() if get_origin(arm) is dict]
            owner = next((block for arm in expected.values() for block in blocks_in(arm)), owner)
            field = owner.model_fields.get(str(part)) if expected and not of_values else None
            expected = _arms(of_values[0]) if of_values else _arms(field.annotation) if field else {}
    return Place(keys, owner)


def _arms(annotation: object) -> dict[object, object]:
    """Return label -> member of a union except None; pydantic adds the label to a location if there are several."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    arms: dict[object, object] = {}
    for member in members:
        bare, *metadata = get_args(member) if get_origin(member) is Annotated else [member]
        tag = next((item.tag for item in metadata if isinstance(item, Tag)), getattr(bare, "__name__", None))
        if bare is not type(None):
            arms[tag] = bare
    return arms


def validate[S: Settings](path: Path, cls: type[S], value: object, under: str = "") -> S:
    """Return the settings that a mapping of a file describes.

    Args:
        path: the file.
        cls: class of the settings.
        value: the mapping.
        under: its dotted key, if it is not the whole file.

    Raises:
        ConfigError: see `explain`.
    """
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise explain(path, error, cls, under) from error


def explain(path: Path, error: ValidationError, cls: type[Settings], under: str = "") -> ConfigError:
    """Return one message for the first error, which also lists the other wrong keys.

    Args:
        path: the file.
        error: errors of pydantic.
        cls: class against which the content was validated.
        under: dotted key of the validated block, if it is not the whole file.
    """
    prefix = [under] if under else []
    places: dict[str, Place] = {}
    found: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors():
        place = locate(cls, detail["loc"])
        places[place.key] = place._replace(keys=prefix + place.keys)
        found.setdefault(place.key, []).append(detail)
    # For a mapping where a mapping or a word is valid, errors inside the mapping are more useful than "not the word".
    keys = [key for key in found if not key or not any(other.startswith(f"{key}.") for other in found)]
    # A misspelt key is also a missing key: report the misspelling first.
    keys.sort(key=lambda key: found[key][0]["type"] != "extra_forbidden")
    message, remedy = _say(places[keys[0]], found[keys[0]])
    if found[keys[0]][0]["type"] == "extra_forbidden":
        beside = [places[key] for key in keys if found[key][0]["type"] == "missing"]
        missing = [place.keys[-1] for place in beside if place.keys[:-1] == places[keys[0]].keys[:-1]]
        if len(missing) == 1 and not remedy.startswith("did you mean"):
            remedy = f"did you mean '{missing[0]}', which is missing? {remedy}"
    others = [places[key].key for key in keys[1:] if key]
    also = f" (also wrong: {', '.join(others)})" if others else ""
    return ConfigError(f"{path}: {message}{also}", remedy)


_LIMITS = {
    "greater_than_equal": ("ge", "a number of at least"),
    "greater_than": ("gt", "a number above"),
    "less_than_equal": ("le", "a number of at most"),
    "less_than": ("lt", "a number below"),
}


def _say(place: Place, details: Sequence[ErrorDetails]) -> tuple[str, str]:
    """Return message and remedy of the errors at one position."""
    # Where several types are valid, the error of our own says best what was meant.
    first = next((each for each in details if each["type"] == "does_not_fit"), details[0])
    kind, name = first["type"], place.key
    if kind == "extra_forbidden":
        valid = place.owner.model_fields
        remedy = suggest(place.keys[-1], valid) if valid else "remove it: this block takes no keys"
        if place.keys[-1] == "options" and valid:
            # A user's own component has its options in a block; a built-in one has them beside the name.
            within = ".".join(place.keys[:-1])
            remedy = f"write what it holds directly below '{within}'; valid: {', '.join(sorted(valid))}"
        return f"unknown key '{name}'", remedy
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _say_component(name, first["input"])
    if kind == "missing":
        return f"key '{name}' is missing", f"add\n{_as_yaml(place.keys)}{_description(place)}"
    if kind == "does_not_fit":
        within = ".".join(filter(None, [name, first["ctx"]["key"]]))
        return f"key '{within}': {first['ctx']['problem']}", first["ctx"]["remedy"]
    if kind == "string_pattern_mismatch" and first["ctx"]["pattern"] == NAME_PATTERN:
        return f"key '{name}': {first['input']!r} is not a valid name", f"names match {NAME_PATTERN}"
    if kind in ("list_type", "tuple_type") and isinstance(first["input"], str):
        remedy = f"write\n{_as_yaml(place.keys, f'[{first["input"]:.80}]')}{_description(place)}"
        return f"key '{name}': should be a list, found the word {first['input']!r:.80}", remedy
    wanted = " or ".join(dict.fromkeys(_wanted(place, detail) for detail in details))
    context, words = _LIMITS.get(kind, ("", ""))
    remedy = f"write {words} {first['ctx'][context]}{_description(place)}" if words else _description(place).strip()
    if kind == "string_type" and isinstance(first["input"], int | float):
        # YAML reads 1 and 1.5 as numbers and true as truth.
        remedy = f"put it in quotes, such as '{str(first['input']).lower()}'{_description(place)}"
    return f"key '{name}': {wanted}, found {first['input']!r:.80}", remedy or "correct the value"


def _wanted(place: Place, detail: ErrorDetails) -> str:
    if detail["type"] in ("model_type", "model_attributes_type"):
        field = place.owner.model_fields.get(place.keys[-1]) if place.keys else None
        named = [b for b in blocks_in(field and field.annotation) if b.__name__ == detail["ctx"]["class_name"]]
        return "should be a mapping" + (f" with the keys {', '.join(named[0].model_fields)}" if named else "")
    if detail["type"] == "dict_type":
        return "should be a mapping, such as {}"
    text: str = detail["msg"]
    for start in ("Input should", "String should", "List should", "Tuple should", "Value error, ", "Unable to"):
        if text.startswith(start):
            return {"Value error, ": "", "Unable to": "unable to"}.get(start, "should") + text[len(start) :]
    return text[0].lower() + text[1:]


def _say_component(key: str, given: object) -> tuple[str, str]:
    """Explain a source, model or kernel that is unknown or has no name."""
    block = key.rpartition(".")[2]
    kind, word = next((kind, word) for kind, (key_of_kind, word) in BLOCKS.items() if key_of_kind == block)
    names = list_components(kind)
    example = f"for example\n    {block}:\n      {word}: {names[0]}"
    if not isinstance(given, Mapping):
        return f"key '{key}': should be a mapping that names a {kind}, found {given!r:.80}", example
    name = given.get(word)
    if name is None:
        near = difflib.get_close_matches(word, map(str, given), n=1, cutoff=0.5)
        meant = f"; '{near[0]}' should read '{word}'" if near else ""
        return f"key '{key}.{word}' is missing{meant}", f"valid: {', '.join(names)}; {example}"
    if kind == "model" and isinstance(name, str) and "~" in name and not name.startswith("~/"):
        formula = json.dumps(name, ensure_ascii=False)
        return f"key '{key}.{word}': {name!r:.80} is a formula", (
            f'give it to a glm:\n    model:\n      name: glm\n      formula: {formula}\n  in Python: {{"name": "glm", "formula": {formula}}}'
        )
    return f"key '{key}.{word}': unknown {kind} {name!r:.80}", f"{suggest(str(name), names)}; {example}"


def _description(place: Place) -> str:
    text = describe(place.owner.model_fields.get(place.keys[-1].partition("[")[0])) if place.keys else ""
    return f"\n  {place.keys[-1]}: {text}" if text else ""


def _as_yaml(keys: Sequence[str], value: str = "...") -> str:
    return "\n".join("    " + "  " * depth + f"{part}:" for depth, part in enumerate(keys)) + f" {value}"
