from . import slurm_options as slurm_options
from .submit import (
    SlurmOptions as SlurmOptions,
    submit_job as submit_job,
)
from .submit_join import (
    submit_join as submit_join,
)
