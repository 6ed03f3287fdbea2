from .coefficient_table import (
    show_coefficients as show_coefficients,
)
from .watched_run import (
    watch_run as watch_run,
)
