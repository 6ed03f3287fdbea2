"""What a job will move, keep and take, before ranks start, and what it took after."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
