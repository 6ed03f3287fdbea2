from . import (
    contract as contract,
)
from .compiling import (
    compile_steps as compile_steps,
)
from .examination import (
    examine as examine,
)
