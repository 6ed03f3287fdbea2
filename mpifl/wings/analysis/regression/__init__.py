"""Models of an outcome by Newton's method: generalised linear ones, their sums and tables of coefficients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
