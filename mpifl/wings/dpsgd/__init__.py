"""DP-SGD at the silos: clipped sums of gradients, the private silo, and the plan of its privacy cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
