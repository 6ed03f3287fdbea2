from . import loop as loop
from .build import device_of as device_of, threads_of as threads_of
from .loop import train as train
from .rehearsal import rehearse as rehearse
