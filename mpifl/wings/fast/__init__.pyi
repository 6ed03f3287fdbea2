from . import (
    codegen as codegen,
    compiled as compiled,
    cuda_graphs as cuda_graphs,
    stacked_training as stacked_training,
    stacked_worker as stacked_worker,
)
from .chains import (
    chain as chain,
)
from .fast_wing import (
    quickly as quickly,
    wing as wing,
)
from .stacked_training import (
    train_together as train_together,
)
from .stacked_trial import (
    Trial as Trial,
    try_batching as try_batching,
)
