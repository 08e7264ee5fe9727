"""The export of an index as a table of Dione in the catalog."""

from pyspark.sql import SparkSession

from gnomon.indexer.tables.catalog import default_location, read_table
from gnomon.jobs.dione import DATA_TABLE, Exported, table_properties
from gnomon.jobs.dione import export_dione as export
from gnomon.jobs.files import CatalogTable, is_table
from gnomon.shadow.errors import UsageError
from gnomon.shadow.metadata import open_view
from gnomon.shadow.storage import Place, as_location, storage_at
from gnomon.shadow.tables import TABLE_PREFIX


def export_dione(
    spark: SparkSession | None, index: Place, target: Place, location: Place | None = None, data_table: str = ""
) -> Exported:
    """Write the newest snapshot of an index as an index of Dione (`gnomon.jobs.dione.export_dione`, with its errors).

    `target` is a folder, or a table `table:db.name` in the catalog of the session, which this call declares or updates.
    `location` is the folder of such a table, by default the catalog's. `data_table` is the name of the data table, if
    the index is not of a catalog table."""
    place = as_location(target)
    if not is_table(place):
        if location is not None:
            raise UsageError(f"location: {place} is one already; name a table")
        return export(index, place, data_table=data_table)
    table = place.removeprefix(TABLE_PREFIX)
    if spark is None:
        raise UsageError("a table of the catalog is declared by Spark; name a folder", place)
    folder = default_location(spark, table) if location is None else as_location(location)
    if spark.catalog.tableExists(table):
        there = read_table(spark, place)
        if not isinstance(there, CatalogTable) or DATA_TABLE not in there.properties:
            raise UsageError("another table has this name; name a new one", place)
        for name, expected in table_properties(open_view(storage_at(index)).spec, data_table).items():
            if there.properties.get(name, "") != expected:
                what = f"its property {name} is of another index; drop the table and export again"
                raise UsageError(what, place, expected=expected, found=there.properties.get(name, ""))
        folder = there.location
    found = export(index, folder, table, data_table)
    spark.sql(found.statement)
    spark.sql(f"MSCK REPAIR TABLE {table} SYNC PARTITIONS")
    return found
