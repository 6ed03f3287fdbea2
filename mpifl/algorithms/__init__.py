"""The algorithms, one file each, by the names that a job calls them, and the server that they see."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
