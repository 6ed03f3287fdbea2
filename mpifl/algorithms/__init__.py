"""The algorithms, one file each, and the server, cohort and optimizers that they use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
