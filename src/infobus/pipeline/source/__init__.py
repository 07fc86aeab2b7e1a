"""The bus as a source for Spark: journals, live and historical, as DataFrames."""
