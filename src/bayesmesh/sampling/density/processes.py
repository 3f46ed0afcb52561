"""Join the processes of one run through JAX's coordination service."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import threading
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

from bayesmesh.errors import PeerError, UserError
from bayesmesh.sampling.density.peers import Peers
from bayesmesh.sampling.density.ranks import JOIN_VARIABLE, VARIABLES, ProcessRank
from bayesmesh.store.machine import count_devices

HEARTBEAT_SECONDS = 30
"""Seconds without a heartbeat after which a process counts as dead, and JAX ends the others."""

LEAVE_SECONDS = 20
"""Seconds for which a process that ends waits for the others to end."""

MESSAGE_BYTES = 2048

_BROKEN = re.compile("(UNKNOWN|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED|INTERNAL|FAILED_PRECONDITION): ")
"""Beginning of the runtime's error about a broken connection, which JAX raises as its own error type or as ValueError."""

_log = logging.getLogger("bayesmesh")


class DistributedPeers(Peers):
    """The processes known to JAX."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.num_processes = jax.process_index(), jax.process_count()

    def exchange[Value](self, value: Value) -> list[Value]:
        """Send a small JSON value to all processes; strings that are too long are truncated."""
        message = _encode(value)
        # JAX gathers arrays of equal shape; the text ends at the first zero byte.
        sent = np.zeros(MESSAGE_BYTES, np.uint8)
        sent[: len(message)] = np.frombuffer(message, np.uint8)
        received = np.asarray(multihost_utils.process_allgather(sent)).reshape(self.num_processes, -1)
        return [json.loads(each.tobytes().rstrip(b"\0")) for each in received]


def _encode(value: object) -> bytes:
    """Return a value as JSON that fits into a message, truncating strings if necessary."""
    encoded = json.dumps(value).encode()
    length = MESSAGE_BYTES
    while len(encoded) > MESSAGE_BYTES:
        length //= 2
        encoded = json.dumps(_cut(value, length)).encode()
    return encoded


def _cut(value: object, length: int) -> object:
    if isinstance(value, list | tuple):
        return [_cut(item, length) for item in value]
    return value[:length] if isinstance(value, str) else value


@contextlib.contextmanager
def joined(rank: ProcessRank) -> Iterator[Peers]:
    """Join the processes that were started together, before any array is made.

    If only this process fails, it exits immediately, so that the others, which wait for it, fail too.

    Raises:
        PeerError: in the block, a collective failed: another process has gone, or a device has.
    """
    if rank.num_processes == 1:
        yield Peers()
        return
    _join(rank)
    peers = DistributedPeers()
    # The first exchange connects them and has a short limit. Later ones may wait, because compile times differ.
    peers.exchange(None)
    _log.info("process %d of %d, met at %s", peers.index, peers.num_processes, rank.address)
    try:
        yield peers
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if isinstance(error, ValueError) and not _BROKEN.match(str(error)):
            raise
        raise PeerError(
            f"process {peers.index} of {peers.num_processes}: a device or another process was lost: {str(error).splitlines()[0]}",
            "read the logs of the other processes, then restart every process; they resume from the last commit",
            is_abrupt=True,
        ) from error
    except UserError as error:
        error.is_abrupt |= not peers.have_parted
        raise


def _join(rank: ProcessRank) -> None:
    # JAX's handler of SIGTERM would replace ours.
    jax.config.update("jax_enable_preemption_service", False)
    has_choice = rank.device is not None and count_devices("gpu", 1) > 1
    watch = threading.Timer(rank.join_seconds, _give_up, [rank])
    watch.daemon = True
    watch.start()
    # JAX would end a process that finds no other with a stack dump, so its limit is longer than ours.
    jax.distributed.initialize(
        rank.address,
        rank.num_processes,
        rank.index,
        rank.device if has_choice else None,
        cluster_detection_method="deactivate",
        initialization_timeout=math.ceil(rank.join_seconds) + 60,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=LEAVE_SECONDS,
    )
    watch.cancel()


def _give_up(rank: ProcessRank) -> None:
    """Print an error and end the process, because nothing else can interrupt JAX's waiting."""
    error = PeerError(
        f"process {rank.index} of {rank.num_processes} (from {rank.source}): the others did not connect to {rank.address} within {rank.join_seconds:g} s",
        f"see that all {rank.num_processes} were started and that their hosts reach that address; set {', '.join(VARIABLES)} to choose another, {JOIN_VARIABLE} to wait longer",
    )
    _log.error("error: %s", error)
    logging.shutdown()
    os._exit(error.exit_code)
