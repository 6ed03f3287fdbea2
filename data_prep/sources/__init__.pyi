from .drawn_masks import has_images as has_images, look_at_masks as look_at_masks
from .fetching import fetch as fetch
from .scaling import scale_of as scale_of
from .source_registry import SOURCES as SOURCES, find_source as find_source, kept_words as kept_words
from .table import identified_table as identified_table, write_statistics as write_statistics
from .unlabelled_images import UnlabelledImages as UnlabelledImages
