from .drawn_masks import (
    has_images as has_images,
    images_in as images_in,
    layout_seen as layout_seen,
    look_at_masks as look_at_masks,
    of_other_kinds as of_other_kinds,
)
from .fetching import fetch as fetch
from .image_groups import group_seen as group_seen
from .new_arrays import far_columns as far_columns, unlabelled_arrays as unlabelled_arrays
from .scaling import scale_of as scale_of
from .source_registry import (
    SOURCES as SOURCES,
    Source as Source,
    find_source as find_source,
    kept_words as kept_words,
)
from .table import identified_table as identified_table, write_statistics as write_statistics
from .table_units import units_of_tables as units_of_tables
from .tokens import tokens_by as tokens_by
from .unlabelled_images import UnlabelledImages as UnlabelledImages
from .unlabelled_texts import texts_in as texts_in
from .unlabelled_volumes import UnlabelledVolumes as UnlabelledVolumes
