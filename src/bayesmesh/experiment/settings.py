"""The base class of every block of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["NAME_PATTERN", "Name", "Settings"]

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Settings(BaseModel):
    """A block of the configuration: immutable; an unknown key is an error, and so is a value of another type.

    A field that is a tuple needs ``strict=False``, for YAML has lists.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=False
    )
