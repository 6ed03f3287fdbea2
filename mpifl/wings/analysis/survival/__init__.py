"""The time of an event that not every row has had yet: curves, the log-rank test, and Cox's model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
