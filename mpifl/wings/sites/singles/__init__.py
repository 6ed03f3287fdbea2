"""Updates of single silos, which sites hand over where a rule or a codec needs each by itself."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
