"""What went wrong is one line, which says what to do."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from gnomon.commands.exit_codes import FAILED
from gnomon.commands.failures import exit_code, one_line


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc of size 8 failed"), MemoryError()])
def test_a_lack_of_memory_is_told_as_one(error: MemoryError) -> None:
    assert one_line(error).startswith("memory ran out")
    assert exit_code(error) == FAILED


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nIt was",
        "Job aborted due to stage failure: Job 3 cancelled because SparkContext was shut down",
    ],
)
def test_an_application_that_its_cluster_ended_is_told_as_one(said: str) -> None:
    told = one_line(PySparkException(said))
    assert told.startswith("Spark: the application was ended before the command was done; ")
    assert "SparkContext" not in told
