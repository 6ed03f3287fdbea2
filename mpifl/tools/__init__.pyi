from . import doctor as doctor, sweep as sweep
from .submit import Wishes as Wishes, submit_job as submit_job
