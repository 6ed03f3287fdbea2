"""What run folders come to: figures, tables, curves, pages."""
