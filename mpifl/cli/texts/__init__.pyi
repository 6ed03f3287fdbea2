from . import text_commands as text_commands
from .exporting import (
    Exporting as Exporting,
    export_run as export_run,
)
from .prompts import (
    ENDINGS as ENDINGS,
    Prompts as Prompts,
    check_prompts as check_prompts,
)
