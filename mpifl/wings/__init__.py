"""What is added to a plain training: a folder for each capability."""
