"""Sums under masks, of which the server sees nothing but the sum."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
