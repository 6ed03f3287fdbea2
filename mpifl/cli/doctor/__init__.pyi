from . import (
    contract as contract,
)
from .compiling import (
    compile_steps as compile_steps,
    scratch as scratch,
)
from .examination import (
    examine as examine,
)
from .selftest import (
    try_installation as try_installation,
)
