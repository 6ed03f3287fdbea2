from . import kernels as kernels
from .base import (
    Aggregator as Aggregator,
    Combined as Combined,
    headers_of as headers_of,
    read_records as read_records,
    updates_of as updates_of,
)
from .by_gram import REFERENCE as REFERENCE, aggregator_of as aggregator_of, mean_of as mean_of
from .columns import memory_of as memory_of
from .exact import is_finite as is_finite, peak_of as peak_of
from .fixed_plan import SumPlan as SumPlan
from .forging import FORGERIES as FORGERIES, Forged as Forged, Forging as Forging
from .known import RULES as RULES
from .masking import Masking as Masking, Question as Question
from .mean import WeightedMean as WeightedMean
from .party_sums import SENTINELS as SENTINELS, FixedSums as FixedSums
from .planning import plan as plan
from .rules import Rule as Rule
from .settings import (
    RULE_NAMES as RULE_NAMES,
    AggregationSettings as AggregationSettings,
    with_uniform_weights as with_uniform_weights,
)
from .weighing import Weighing as Weighing
from .weights import WEIGHT_RULES as WEIGHT_RULES, FLTrust as FLTrust, WeightRule as WeightRule
