"""Takeovers of indexes of Dione's."""
