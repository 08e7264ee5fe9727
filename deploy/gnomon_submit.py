"""The program that spark-submit is given: `gnomon` with the arguments behind it."""

from gnomon.__main__ import main

main()
