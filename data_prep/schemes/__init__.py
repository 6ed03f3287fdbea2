"""The schemes that cut a data set into silos, and what silos hold out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
