"""The server's side of the exchange: its requests, and its checks of reports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
