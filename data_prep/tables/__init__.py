"""Tables of values by columns: what they mean, reading them piece by piece, and turning them into numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
