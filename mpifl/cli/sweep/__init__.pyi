from .running import (
    sweep_command as sweep_command,
)
