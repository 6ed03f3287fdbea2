"""What a run is asked to do, and what it keeps: the job file, the run folder, checkpoints."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
