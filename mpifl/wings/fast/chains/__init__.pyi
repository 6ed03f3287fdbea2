from . import (
    chain_steps as chain_steps,
    dense_passes as dense_passes,
    large_layer_step as large_layer_step,
)
from .chain_formulas import (
    chain as chain,
)
from .chain_steps import (
    ChainStep as ChainStep,
    by_formulas as by_formulas,
)
