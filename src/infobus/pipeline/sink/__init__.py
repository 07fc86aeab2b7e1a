"""The bus as a Spark sink: rows become events, each published once."""
