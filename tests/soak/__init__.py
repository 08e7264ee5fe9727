"""Attacks that run for minutes to hours, with an oracle that shares no code with the product."""
