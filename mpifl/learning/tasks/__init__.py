"""Tasks: the loss that trains a model, and the metrics that judge it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
