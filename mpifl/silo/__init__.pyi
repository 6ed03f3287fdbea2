from .answering import (
    Answering as Answering,
    placed as placed,
)
from .lanes import (
    ALONE as ALONE,
    Lanes as Lanes,
)
from .scoring import (
    Score as Score,
    Scoring as Scoring,
    as_fits as as_fits,
    evaluate as evaluate,
    purely as purely,
    short_of_memory as short_of_memory,
    usable as usable,
)
from .silo import (
    RESIDUAL as RESIDUAL,
    Silo as Silo,
)
from .split_table import (
    UNSPLIT as UNSPLIT,
    SplitSettings as SplitSettings,
)
from .splits import (
    learnable as learnable,
)
