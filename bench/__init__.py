"""Benchmarks of Gnomon and its peers, in the same run. docs/benchmarks.md shows the newest results.

- `fetch`       rows by key: the workloads, their contenders, the command
- `formats`     rows by key from a file of each format: the command
- `btree`       one index file: the workloads, the measurements, the command
- `match`       many keys against one index file: the workloads, the command
- `build`       the build of an index, compared with Spark's own shuffle, sort and write: the command
- `processes`   CPU time by process
- `sampling`    CPU time by Python function
- `load`        rows of many keys with Spark, compared with its joins: the workloads, the command
- `dedup`       the new rows of a batch found and appended, compared with Spark's anti join: the workloads, the command
- `growth`      builds and look-ups with more files, partitions and rows: the command
- `page`        figures as Markdown, and the record of a run in bench/results
- `report`      docs/benchmarks.md, made of these records: the command

Parts of `fetch`:

- `lake`        the data: the same rows as two sources, and the requested keys
- `contenders`  one class for each way to fetch a row, and the extra data that some of them need
- `rounds`      fetches in turns, timed, counted and compared
- `table`       results as Markdown
- `goals`       results compared with the goals of the design
- `server`      `gnomon serve` as a process

Parts of `formats`, besides `rounds` and `table`:

- `format_files`       the same rows in each format
- `format_contenders`  one class for each way to fetch a row from such a file

Parts of `load`:

- `load_contenders`  one class for each way to load such rows

Parts of `dedup`:

- `dedup_data`        tables, batches for them, and the expected result
- `dedup_contenders`  one class for each way to find such rows, and how a run is counted and undone
- `dedup_tasks`       the code of their tasks

Parts of `btree`:

- `stores`      one class for each file that finds entries by key
- `choices`     the parts of our file, compared with their alternatives
"""
