from . import (
    batches as batches,
)
from .augment import (
    Change as Change,
    load_change as load_change,
)
from .batches import (
    Batches as Batches,
)
from .prefetching import (
    ahead as ahead,
)
from .torch_dataset import (
    Examples as Examples,
)
from .warping import (
    Warp as Warp,
    load_warp as load_warp,
)
