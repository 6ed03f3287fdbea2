from . import (
    command_options as command_options,
    completing as completing,
    ending as ending,
)
from .commands import (
    app as app,
    main as main,
)
from .scripting import (
    Run as Run,
    Sweep as Sweep,
    train as train,
)
