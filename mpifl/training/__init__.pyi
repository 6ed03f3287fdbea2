from . import loop as loop
from .accounting import figures_of_plan as figures_of_plan, plans as plans, refuse_without as refuse_without
from .at_site import user_name as user_name
from .devices import device_of as device_of, threads_of as threads_of
from .scripting import Run as Run, train as train
from .validation import validate_job as validate_job
