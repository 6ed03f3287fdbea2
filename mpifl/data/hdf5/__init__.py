"""HDF5 files, parsed by a separate process and written without locks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
