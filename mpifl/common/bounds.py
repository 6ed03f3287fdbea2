"""What numbers may be at most, wherever they are written or read."""

LARGEST_FIGURE = 1e100
"""The magnitude of a silo's number, and of a figure of a round: sums of their squares are finite."""
