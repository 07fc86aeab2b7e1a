"""The bus as a sink of Spark: rows become events, each published once."""
