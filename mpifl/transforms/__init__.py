"""Transforms: they change messages and updates on their way, and no algorithm sees it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
