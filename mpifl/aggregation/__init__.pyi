from . import kernels as kernels
from .base import Aggregator as Aggregator, Combined as Combined, headers_of as headers_of, updates_of as updates_of
from .exact import is_finite as is_finite, peak_of as peak_of
from .kernels import WITHOUT as WITHOUT
from .mean import WeightedMean as WeightedMean
from .planning import plan as plan
