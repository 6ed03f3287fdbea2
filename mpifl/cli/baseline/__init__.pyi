from .baseline_run import (
    baseline_command as baseline_command,
)
