from . import slurm_options as slurm_options
from .joining_script import (
    submit_join as submit_join,
)
from .submit import (
    SlurmOptions as SlurmOptions,
    submit_job as submit_job,
)
