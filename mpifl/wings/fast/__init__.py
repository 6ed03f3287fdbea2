"""Faster local steps: formulas for perceptrons, compiled steps, stacked steps, CUDA graphs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
