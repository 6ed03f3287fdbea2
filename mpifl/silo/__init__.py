"""What a silo does with a model: train it locally, take its gradient, evaluate it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
