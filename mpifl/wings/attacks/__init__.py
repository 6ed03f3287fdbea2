"""Attacks by Byzantine silos, to test what a rule tolerates."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
