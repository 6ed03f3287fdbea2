from .algorithm import (
    Algorithm as Algorithm,
)
from .algorithm_registry import (
    ALGORITHMS as ALGORITHMS,
    ELSEWHERE as ELSEWHERE,
)
from .cohort_protocol import (
    EVALUATIONS as EVALUATIONS,
    Cohort as Cohort,
    Lead as Lead,
    Work as Work,
    usual_weight as usual_weight,
)
from .fedavg import (
    FedAvg as FedAvg,
)
from .server import (
    Server as Server,
    scored_here as scored_here,
)
from .server_optimizers import (
    OPTIMIZERS as OPTIMIZERS,
    ServerOptimizer as ServerOptimizer,
    ServerSGD as ServerSGD,
)
from .virtual_clock import (
    ClockSettings as ClockSettings,
    Pace as Pace,
    RoundClock as RoundClock,
)
