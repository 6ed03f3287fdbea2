"""Limits of numbers, wherever they are written or read."""

LARGEST_FIGURE = 1e100
"""The largest magnitude of a silo's scalar and of a round's figure, so that sums of squares stay finite."""
