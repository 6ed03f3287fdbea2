"""The workers' side of the exchange: how a rank carries out requests for its silos."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
