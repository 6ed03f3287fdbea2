from .running import (
    INTERRUPTED as INTERRUPTED,
    run_each as run_each,
    sweep_command as sweep_command,
)
from .settings_grid import (
    GridRun as GridRun,
    check_no_run as check_no_run,
    grid as grid,
    readable as readable,
    validate_all as validate_all,
)
