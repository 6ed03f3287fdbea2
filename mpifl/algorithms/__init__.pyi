from .base import (
    EVALUATIONS as EVALUATIONS,
    Algorithm as Algorithm,
    Cohort as Cohort,
    Work as Work,
    usual_weight as usual_weight,
)
from .fedavg import FedAvg as FedAvg
from .registry import ALGORITHMS as ALGORITHMS
