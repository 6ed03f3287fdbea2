from .batches import Batches as Batches
from .hdf5 import chunk_rows as chunk_rows
from .hdf5_reading import start_parser as start_parser
from .shards import (
    FEATURE_DTYPES as FEATURE_DTYPES,
    SPLITS as SPLITS,
    Features as Features,
    FederationSpec as FederationSpec,
    Shard as Shard,
    ShardEntry as ShardEntry,
    Split as Split,
    check_arrays as check_arrays,
    new_shard as new_shard,
    open_shard as open_shard,
    read_federation as read_federation,
    read_spec as read_spec,
)
from .vertical import (
    VerticalEntry as VerticalEntry,
    VerticalSpec as VerticalSpec,
    VerticalSplit as VerticalSplit,
    is_vertical as is_vertical,
    new_vertical as new_vertical,
    open_vertical as open_vertical,
    read_vertical as read_vertical,
)
