"""Models, tasks with their losses, and metrics."""
