"""What is learned: models, tasks with their losses, metrics."""
