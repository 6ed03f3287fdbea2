"""Random jobs: drawn over every key of the schema, and trained in two worlds that must agree."""
