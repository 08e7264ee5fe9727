"""The main program for spark-submit: `gnomon` with its arguments."""

from gnomon.__main__ import main

main()
