"""Private alignment: finds the persons that all parties have and orders their rows, without showing other
persons."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
