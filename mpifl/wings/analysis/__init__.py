"""Regression, survival curves and tables of the rows, from exact sums: the same bits however rows are cut."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
