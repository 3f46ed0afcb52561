"""A command for tests that start it and send it signals, and for jobs: has a process forked by a zygote be it, and ends as that one does.

Not run from here: a zygote writes it, with its address, into a folder of its own.
"""

import json
import os
import signal
import socket
import sys


def main(address: str, python: str, module: str) -> None:
    """Run a module with the arguments of this process."""
    command = [module, *sys.argv[1:]]
    if any(name.startswith("JAX_") and name != "JAX_PLATFORMS" for name in os.environ):
        # JAX has read its variables when it was imported.
        os.execv(python, [python, "-m", *command])  # noqa: S606 - as a shell would have started it
    request = {"command": command, "cwd": os.getcwd(), "environment": dict(os.environ), "path": []}
    message = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
    socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(message)
    code = int(connection.makefile().readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)
