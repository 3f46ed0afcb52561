"""The message by which a job asks the server for a fork."""

from __future__ import annotations

from typing import TypedDict


class Request(TypedDict):
    """What a fork is to be: `identity` is compared with the server's, the rest makes it like a new process."""

    identity: str
    words: list[str]
    cwd: str
    environment: dict[str, str]
    path: list[str]
