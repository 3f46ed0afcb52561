"""The base class of every block of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["NAME_PATTERN", "Name", "Settings"]

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Settings(BaseModel):
    """A block of the configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=False)
