"""What a source hands over: examples and their rows, in memory or read when they are needed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
