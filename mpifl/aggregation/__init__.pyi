from . import kernels as kernels
from .exact import is_finite as is_finite, peak_of as peak_of
from .kernels import WITHOUT as WITHOUT
from .mean import WeightedMean as WeightedMean
from .planning import averages as averages, headers_of as headers_of, plan as plan, updates_of as updates_of
