"""A silo of one's own: its data becomes its one shard, and a federation is assembled of many."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
