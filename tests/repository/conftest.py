"""A database of the test's own, on SQLite and on PostgreSQL, and nodes with patience."""

import uuid

import pytest
from sqlalchemy import create_engine, make_url, text

from infobus.repository import Repository
from tests.cli.conftest import patient

__all__ = ["patient"]


@pytest.fixture
def postgres_url(postgres):
    """A schema of the test's own."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    engine.dispose()
    url = make_url(postgres).update_query_dict({"options": f"-csearch_path={name}"})
    return url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """A database of the test's own, of each kind."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/objects.db"


@pytest.fixture
def repository(url):
    with Repository(url) as repository:
        yield repository


@pytest.fixture
def database(url):
    """The database as anybody else sees it: `database("SELECT ...")` gives the rows."""
    engine = create_engine(url)

    def run(statement, **values):
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return result.all() if result.returns_rows else []

    yield run
    engine.dispose()
