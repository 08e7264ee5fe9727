"""The command `gnomon`: one small file for each command; `__main__` imports one when it is called, so that `get` and
`serve` run where no Spark is installed."""
