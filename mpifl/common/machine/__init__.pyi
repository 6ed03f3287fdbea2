from . import (
    accelerators as accelerators,
    floors as floors,
    imports as imports,
    native as native,
    signals as signals,
    tuning as tuning,
)
from .debug_mode import (
    DEBUGGING as DEBUGGING,
    debugging as debugging,
)
from .energy import (
    ENERGY as ENERGY,
    EnergyMeter as EnergyMeter,
)
from .node_facts import (
    granted_cores as granted_cores,
    hardware as hardware,
    resident_mb as resident_mb,
    scratch_room as scratch_room,
)
from .processors import (
    moved_from as moved_from,
    pin_kernels as pin_kernels,
    processor as processor,
)
from .programs import (
    runnable as runnable,
)
from .signals import (
    SIGNALS as SIGNALS,
)
