"""Local training: its settings, its one loop, and the kinds of steps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
