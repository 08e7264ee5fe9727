"""Jobs: what they do whether Spark runs them or this process.

- `stages`  the stages of a job
- `files`   the files of a source
- `load`    rows of many keys
- `local`   the engine of this process
- `build`   builds of an index
- `dedup`   appends of the rows of a batch whose key is new
- `dione`   indexes of Dione's: taken over, and written for its readers
"""

from gnomon.jobs.stages import TASKS, Progress, Stages, Step, job_span

__all__ = ["TASKS", "Progress", "Stages", "Step", "job_span"]
