"""What a site's ranks answer: their sums, and the answers that are kept and given again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
