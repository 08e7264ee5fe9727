"""Stores that tests start for themselves: real servers, on loopback, killed at the end."""
