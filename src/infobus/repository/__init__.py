"""The object repository: store objects in relational tables, capture events, and query.

>>> from infobus import DataObject
>>> class Story(DataObject):
...     headline: str
>>> with Repository("sqlite://") as repository:
...     stored = repository.store([Story(headline="GM up")], subject="news.equity.gmc")
...     print(repository.query("Story", where='contains(headline, "GM")'))
[Story(headline='GM up')]
"""

from infobus.errors import UsageError
from infobus.extras import advice

try:
    import sqlalchemy  # noqa: F401
except ImportError as error:
    raise UsageError(
        f"the repository needs SQLAlchemy, which is not installed; {advice('sql')}"
    ) from error

from infobus.repository.queries import QueryResult
from infobus.repository.repository import Repository

__all__ = ["QueryResult", "Repository"]
