"""Wings: a folder for each capability that a training may add to the core."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
