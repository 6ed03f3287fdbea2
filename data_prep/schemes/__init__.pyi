from .holdout import Shares as Shares
from .lookup import SCHEMES as SCHEMES, find_scheme as find_scheme, resolve as resolve
from .scheme import Options as Options, Scheme as Scheme, chosen as chosen
from .vertical import named_columns as named_columns, shape_of as shape_of
from .whole import check_groups as check_groups, cut_whole as cut_whole
