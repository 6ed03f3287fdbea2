from . import (
    shards as shards,
)
from .column_shards import (
    VerticalSplit as VerticalSplit,
    alignment_of as alignment_of,
    new_vertical as new_vertical,
    open_vertical as open_vertical,
    write_vertical as write_vertical,
)
from .encodings import (
    UNLIKE_READINGS as UNLIKE_READINGS,
    differing_images as differing_images,
    encoding_of as encoding_of,
    reading_of as reading_of,
    record_of as record_of,
    shared_encoding as shared_encoding,
    unlike as unlike,
    unlike_readings as unlike_readings,
)
from .federation_spec import (
    FederationSpec as FederationSpec,
    ShardEntry as ShardEntry,
    arrays_of as arrays_of,
    read_federation as read_federation,
    read_spec as read_spec,
    seen_as as seen_as,
    version_of as version_of,
)
from .group_numbers import (
    group_note as group_note,
    groups_of as groups_of,
    labels_of as labels_of,
    write_groups as write_groups,
)
from .records import (
    NAMED as NAMED,
    ONE as ONE,
    Name as Name,
    Record as Record,
    Texts as Texts,
    by_path as by_path,
    few_arrays as few_arrays,
    held_out as held_out,
    notes_of as notes_of,
    one_or_named as one_or_named,
    read_parts as read_parts,
)
from .row_numbers import (
    Provenance as Provenance,
    ids_of as ids_of,
    joined_ids as joined_ids,
    provenance_of as provenance_of,
    texts_of as texts_of,
    write_provenance as write_provenance,
)
from .shards import (
    SPLITS as SPLITS,
    Shard as Shard,
    Split as Split,
    new_shard as new_shard,
    open_shard as open_shard,
    split_of as split_of,
    stored_dtype as stored_dtype,
)
from .vertical_spec import (
    Alignment as Alignment,
    AnyEntry as AnyEntry,
    AnySpec as AnySpec,
    VerticalEntry as VerticalEntry,
    VerticalSpec as VerticalSpec,
    is_vertical as is_vertical,
    parse_any as parse_any,
    read_any as read_any,
    read_vertical as read_vertical,
)
