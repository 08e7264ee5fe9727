"""Gnomon measured beside its peers, in one run. What the figures mean: docs/benchmarks.md.

- `fetch`       rows by key: the workloads, their contenders, the command
- `formats`     rows by key from a file of each format: the command
- `btree`       one index file: the workloads, what is measured, the command
- `match`       many keys against one index file: the workloads, the command
- `build`       an index built, beside Spark's own shuffle, sort and write: the command
- `processes`   CPU time by process; `sampling`, where Python spends it
- `load`        rows of many keys with Spark, beside its joins: the workloads, the command
- `dedup`       the new rows of a batch found and appended, beside Spark's anti join: the workloads, the command
- `page`        figures as Markdown, and their place in docs/benchmarks.md

Of `fetch`:

- `lake`        the data: the same rows as two sources, and the keys that are asked for
- `contenders`  one class for each way to fetch a row, and what some of them keep beside the source
- `rounds`      fetches in turns, timed, counted and compared
- `table`       results as Markdown
- `goals`       results against what the design asks for
- `server`      `gnomon serve` as a process

Of `formats`, besides `rounds` and `table`:

- `format_files`       the same rows in each format
- `format_contenders`  one class for each way to fetch a row from such a file

Of `load`:

- `load_contenders`  one class for each way to load such rows

Of `dedup`:

- `dedup_data`        tables, batches for them, and what the answer is
- `dedup_contenders`  one class for each way to find such rows, and how a run is counted and undone
- `dedup_tasks`       what their tasks run

Of `btree`:

- `stores`      one class for each file that finds entries by key
- `choices`     what our file is made of, against what else it could be made of
"""
