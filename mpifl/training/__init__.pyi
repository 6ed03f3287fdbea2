from . import loop as loop
from .build import device_of as device_of, threads_of as threads_of
from .scripting import Run as Run, train as train
from .validation import validate_job as validate_job
