"""Jobs: the steps of builds, loads and appends, and the engine that runs them in this process; `indexer` has Spark's.

- `stages`  the stages of a job
- `files`   the files of a source
- `load`    rows of many keys
- `build`   builds of an index
- `dedup`   appends of the rows of a batch whose key is new
- `dione`   the import of an index of Dione, and the export of an index in Dione's format
"""

from gnomon.jobs.stages import TASKS, Progress, Stages, Step, job_span

__all__ = ["TASKS", "Progress", "Stages", "Step", "job_span"]
