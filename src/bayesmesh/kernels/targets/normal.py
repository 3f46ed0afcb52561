"""A target in groups of units that are normal given all else, such as users given films, where ratings are normal."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Key

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position, Target


@runtime_checkable
class Normals(Protocol):
    """Groups of units, and how to draw them and all else; each transition leaves the target invariant."""

    @property
    def num_groups(self) -> int: ...

    def draw(self, key: Key[Array, " chain"], position: Position, group: int) -> Position:
        """Draw all units of a group anew, given all other coordinates."""
        ...

    def redraw(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make a transition along directions that leave the likelihood unchanged."""
        ...

    def redraw_rest(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make a transition of the coordinates outside all groups."""
        ...


def normals_of(target: Target) -> Normals:
    """Return the normal groups of a target.

    Raises:
        ConfigError: the target has none.
    """
    found: Normals | None = getattr(target, "normals", None)
    if found is None:
        raise ConfigError(
            "key 'kernel.name': gibbs draws units from exact normals, and the model declares no such groups (`normal_groups`)",
            "use it with rating_factorization and `likelihood: gaussian`; other models take nuts, or unit_hmc where they have `unit_groups`",
        )
    return found
