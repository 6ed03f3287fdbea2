"""Which persons several parties have in common, found without showing anybody else's, and in which order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
