"""One job over a grid of settings: all runs one after another, or one run for a task of a job array."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
