"""Gnomon measured beside its peers, in one run. What the figures mean: docs/benchmarks.md.

- `fetch`       rows by key: the workloads, their contenders, the command
- `lake`        the data: the same rows as two sources, and the keys that are asked for
- `contenders`  one class for each way to fetch a row, and what some of them keep beside the source
- `rounds`      fetches in turns, timed, counted and compared
- `table`       results as Markdown
- `goals`       results against what the design asks for
- `server`      `gnomon serve` as a process
"""
