"""The partition columns of rows, whose values are in the name of the folder."""

from typing import Any

import pyarrow as pa

from gnomon.shadow.metadata import IndexSpec
from gnomon.shadow.tables import partition_array, stored_partition
from gnomon.shadow.values import python_values

MOST_FOLDERS = 10_000  # whose values are kept


class PartitionColumns:
    """The partition columns of an index. Safe to share between threads."""

    def __init__(self, spec: IndexSpec) -> None:
        self._spec = spec
        self._values: dict[str, dict[str, Any]] = {}

    def arrays(self, partition: str, rows: int) -> dict[str, pa.Array]:
        """The columns of a partition, repeated for a number of rows."""
        spec, values = self._spec, stored_partition(partition, self._spec.partition_types)
        return {name: partition_array(values.get(name), spec.partition_type(name), rows) for name in spec.partitions}

    def values(self, partition: str) -> dict[str, Any]:
        """The values of a partition, as rows show them."""
        found = self._values.get(partition)
        if found is None:
            if len(self._values) >= MOST_FOLDERS:
                self._values.clear()
            arrays = self.arrays(partition, 1)
            found = self._values[partition] = {name: python_values(array)[0] for name, array in arrays.items()}
        return found
