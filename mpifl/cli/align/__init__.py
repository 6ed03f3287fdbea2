"""Private alignment: finds and orders the persons that all parties have, without showing any others."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
