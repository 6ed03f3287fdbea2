"""Rules of aggregation that tolerate Byzantine silos: rules of columns and rules by weights."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
