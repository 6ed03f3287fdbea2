"""A run: its job file and its run folder."""
