"""Values of a table: texts, gaps, numbers and their notation, counted and checked."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
