"""Tables of values by columns: what they mean, reading them piece by piece, and turning them into numbers."""
