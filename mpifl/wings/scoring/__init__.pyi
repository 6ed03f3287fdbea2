from .at_workers import (
    AtWorkers as AtWorkers,
)
from .test_scores import (
    Scores as Scores,
)
