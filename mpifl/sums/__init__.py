"""The exact mean: sums of updates in any order, with the same bits."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
