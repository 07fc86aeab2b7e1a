"""The bus as a source of Spark: journals, live and historical, as DataFrames."""
