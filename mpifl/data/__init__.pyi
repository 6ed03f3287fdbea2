from .augment import CHANGES as CHANGES, Change as Change, load_change as load_change
from .batches import Batches as Batches
from .dataset import Examples as Examples
from .described import AnyEntry as AnyEntry, AnySpec as AnySpec
from .features import (
    FEATURE_DTYPES as FEATURE_DTYPES,
    Features as Features,
    Inputs as Inputs,
    check_masks as check_masks,
)
from .federation import (
    FederationSpec as FederationSpec,
    ShardEntry as ShardEntry,
    arrays_of as arrays_of,
    read_federation as read_federation,
    read_spec as read_spec,
    seen_as as seen_as,
    version_of as version_of,
)
from .groups import groups_of as groups_of, write_groups as write_groups
from .hdf5 import chunk_rows as chunk_rows
from .hdf5_reading import start_parser as start_parser
from .prefetching import ahead as ahead
from .ragged import (
    OFFSETS as OFFSETS,
    Column as Column,
    Ragged as Ragged,
    flat as flat,
    ragged_of as ragged_of,
)
from .records import by_path as by_path
from .shards import (
    SPLITS as SPLITS,
    Holds as Holds,
    Shard as Shard,
    Split as Split,
    new_shard as new_shard,
    open_shard as open_shard,
    split_of as split_of,
    stored_dtype as stored_dtype,
)
from .targets import (
    Aims as Aims,
    Array as Array,
    Targets as Targets,
    aims_by_path as aims_by_path,
    check_arrays as check_arrays,
    check_kind as check_kind,
    check_labels as check_labels,
    label_counts as label_counts,
    told as told,
)
from .tensors import each as each, rows as rows
from .vertical import (
    Alignment as Alignment,
    VerticalEntry as VerticalEntry,
    VerticalSpec as VerticalSpec,
    is_vertical as is_vertical,
    parse_any as parse_any,
    read_any as read_any,
    read_vertical as read_vertical,
)
from .vertical_shards import (
    VerticalSplit as VerticalSplit,
    alignment_of as alignment_of,
    new_vertical as new_vertical,
    open_vertical as open_vertical,
    write_vertical as write_vertical,
)
