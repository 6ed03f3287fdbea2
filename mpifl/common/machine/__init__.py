"""The machine and its Python: accelerators, compiled loops, processors, signals, versions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
