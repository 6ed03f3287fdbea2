from . import (
    build as build,
    devices as devices,
    long_steps as long_steps,
    loop as loop,
    rank_agreement as rank_agreement,
    start as start,
)
from .beforehand import (
    models_of as models_of,
)
from .devices import (
    device_name as device_name,
    device_of as device_of,
    place_on_gpus as place_on_gpus,
    rank_device as rank_device,
    settle as settle,
    settle_kernels as settle_kernels,
    threads_of as threads_of,
)
from .draw_cohort import (
    Coins as Coins,
    Selector as Selector,
    check_clock as check_clock,
    drawn as drawn,
    round_clock as round_clock,
)
from .early_stopping import (
    BestModel as BestModel,
)
from .hosting import (
    BOTTOMS as BOTTOMS,
    about_rank as about_rank,
    server_of as server_of,
)
from .rank_agreement import (
    agree as agree,
    agree_on as agree_on,
)
from .wing import (
    Changed as Changed,
    ModelFacts as ModelFacts,
    Wing as Wing,
    WingsOf as WingsOf,
    core_alone as core_alone,
)
