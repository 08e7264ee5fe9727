"""Imports of indexes of Dione's."""
