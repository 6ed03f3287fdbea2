from .following_ranks import (
    following as following,
)
from .update_checks import (
    as_update as as_update,
    header_of_end as header_of_end,
)
from .worker import (
    Handler as Handler,
    Worker as Worker,
)
from .worker_context import (
    WorkerContext as WorkerContext,
)
