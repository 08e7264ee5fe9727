"""The tests that a version of Spark can run."""

from pyspark.sql.datasource import DataSourceReader

# Spark 4.0 pushes no filters to a Python source; these tests import the filter classes.
collect_ignore = (
    [] if hasattr(DataSourceReader, "pushFilters") else ["datasource/test_pushdown.py", "spark/test_scan_isolation.py"]
)
