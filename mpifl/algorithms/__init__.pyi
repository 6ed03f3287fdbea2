from .asking import Cohort as Cohort, Conversation as Conversation, Work as Work
from .base import (
    EVALUATIONS as EVALUATIONS,
    Algorithm as Algorithm,
    usual_weight as usual_weight,
)
from .fedavg import FedAvg as FedAvg
from .registry import ALGORITHMS as ALGORITHMS, ELSEWHERE as ELSEWHERE
