"""Equality deletes, which Spark cannot write, by Iceberg's Java library in Spark's own process."""

from collections.abc import Sequence
from typing import Any

from tests.golden.tables.recorders import IcebergRecorder


class EqualityDeletes:
    """Commits equality deletes, and rows, through Iceberg's Java library."""

    def __init__(self, run: IcebergRecorder) -> None:
        self.run = run
        self.java = run.spark._jvm
        self.files = 0

    def commit(
        self,
        operation: str,
        deletes: list[dict[str, Any]],
        rows: Sequence[dict[str, Any]] = (),
        superseded: Sequence[int] = (),
        spec: int | None = None,
        partition: str | None = None,
        format: str = "PARQUET",
    ) -> None:
        """Commit one delete file, and one file of the rows if there are any. All deletes have the same columns. A
        position delete of the same commit removes the superseded rows, by their positions, as Flink does where one
        key changes twice. The files belong to a partition spec, by default the table's own, and to its partition."""
        table = self.run.table()
        used = table.spec() if spec is None else table.specs()[spec]
        values = None
        if partition is not None:
            values = self.java.org.apache.iceberg.PartitionData(used.partitionType())
            values.put(0, partition)
        names = list(deletes[0])
        ids = self.run.spark.sparkContext._gateway.new_array(self.java.int, len(names))
        for place, name in enumerate(names):
            ids[place] = table.schema().findField(name).fieldId()
        kind = self.java.org.apache.iceberg.FileFormat.valueOf(format)
        of_deletes = table.schema().select(names)
        factory = (
            self.java.org.apache.iceberg.data.GenericFileWriterFactory.Builder(table)
            .dataFileFormat(kind)
            .dataSchema(table.schema())
            .deleteFileFormat(kind)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(of_deletes)
            .build()
        )
        delta = table.newRowDelta()
        writer = factory.newEqualityDeleteWriter(self.output(table, format), used, values)
        self.write(writer, of_deletes, deletes)
        delta.addDeletes(writer.toDeleteFile())
        if rows:
            writer = factory.newDataWriter(self.output(table, format), used, values)
            self.write(writer, table.schema(), rows)
            delta.addRows(writer.toDataFile())
            if superseded:
                path = writer.toDataFile().location()
                writer = factory.newPositionDeleteWriter(self.output(table, format), used, values)
                for position in superseded:
                    writer.write(self.java.org.apache.iceberg.deletes.PositionDelete.create().set(path, position))
                writer.close()
                delta.addDeletes(writer.toDeleteFile())
        delta.commit()
        self.run.record(operation)

    def output(self, table: Any, format: str) -> Any:
        self.files += 1
        file = table.io().newOutputFile(f"{self.run.path}/data/written-by-java-{self.files}.{format.lower()}")
        return self.java.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)

    def write(self, writer: Any, schema: Any, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            record = self.java.org.apache.iceberg.data.GenericRecord.create(schema)
            for name, value in row.items():
                record.setField(name, value)
            writer.write(record)
        writer.close()
