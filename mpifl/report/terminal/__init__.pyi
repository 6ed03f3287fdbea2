from .watched_run import (
    watch_run as watch_run,
)
