"""The workers' side of the exchange: what a rank does for its silos when it is asked."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
