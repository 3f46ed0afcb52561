"""The message by which a job asks the server for a fork."""

from __future__ import annotations

from typing import TypedDict


class Request(TypedDict):
    """A request for a fork: `identity` is compared with the server's, and the rest makes the fork like a new process."""

    identity: str
    words: list[str]
    cwd: str
    environment: dict[str, str]
    path: list[str]
