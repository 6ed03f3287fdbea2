"""The wire: messages and vectors between ranks; the only room that knows MPI."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
