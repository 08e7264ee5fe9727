"""Which tests a version of Spark can run."""

from pyspark.sql.datasource import DataSourceReader

# Spark 4.0 hands a Python source no filters; these import their names.
collect_ignore = [] if hasattr(DataSourceReader, "pushFilters") else ["test_own_scans.py", "test_pushdown.py"]
