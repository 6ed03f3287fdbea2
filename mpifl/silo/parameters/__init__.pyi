from .buffer_rules import (
    rules_of as rules_of,
)
from .buffers import (
    Buffers as Buffers,
)
from .dtypes import (
    check_tensors as check_tensors,
)
from .flat_model import (
    Allocate as Allocate,
    FlatModel as FlatModel,
    Objective as Objective,
    backward as backward,
    in_precision as in_precision,
    scalar as scalar,
)
from .lent_model import (
    Lent as Lent,
)
from .wrapped_names import (
    unwrapped as unwrapped,
)
