"""What went wrong is one line, which says what to do."""

import pyarrow as pa
import pytest

from gnomon.commands.exit_codes import FAILED
from gnomon.commands.failures import exit_code, one_line


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc of size 8 failed"), MemoryError()])
def test_a_lack_of_memory_is_told_as_one(error: MemoryError) -> None:
    assert one_line(error).startswith("memory ran out")
    assert exit_code(error) == FAILED
