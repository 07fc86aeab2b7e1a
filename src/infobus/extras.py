"""What is installed only on request: which extra brings a package, and how to get it."""

from __future__ import annotations

from infobus.errors import UsageError

_EXTRA_OF = {
    "cryptography": "secure",
    "grpc": "bench",
    "matplotlib": "bench",
    "nats": "bench",
    "pandas": "spark",
    "psycopg": "sql",
    "pyarrow": "journal",
    "pyspark": "spark",
    "sqlalchemy": "sql",
    "zmq": "bench",
}


def advice(extra: str) -> str:
    """Return how to install an extra.

    >>> advice("sql")
    "in the folder of infobus, run: pip install '.[sql]'"
    """
    return f"in the folder of infobus, run: pip install '.[{extra}]'"


def missing(error: ImportError) -> UsageError | None:
    """Return the error of a user who lacks an extra; None if no extra would help."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(package)
    if extra is None:
        return None
    return UsageError(f"this needs {package}, which is not installed; {advice(extra)}")
