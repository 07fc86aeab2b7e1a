"""The process that forks Spark's Python workers, without tracebacks when Spark has had enough.

Spark closes the connection to a worker whose further rows it does not need, as after `limit`.
PySpark's own daemon prints a traceback for each of them.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Do the work of one process; return its exit code."""
    try:
        return _work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
