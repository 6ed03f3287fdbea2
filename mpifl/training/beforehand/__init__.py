"""Checks before round 1, so that a mistake is one line at the start."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
