from .fetching import fetch as fetch
from .registry import SOURCES as SOURCES, find_source as find_source
from .table import write_statistics as write_statistics
