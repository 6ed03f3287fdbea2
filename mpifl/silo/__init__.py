"""A silo: it trains a model locally, computes its gradient, and evaluates it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
