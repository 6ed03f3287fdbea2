"""A training as a SLURM job: what the cluster has, the batch script, and its submission."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
