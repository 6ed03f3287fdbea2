"""The server's side of the exchange: whom it asks, and what it believes of a report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
