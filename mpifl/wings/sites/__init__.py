"""Organisations that start their own ranks, and what they tell each other by letters."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
