from .beats import Stopped as Stopped
from .keyed import read_key as read_key
from .party import Means as Means, Party as Party, Table as Table
from .server import Aligned as Aligned, Comparer as Comparer
from .terms import Terms as Terms, read_terms as read_terms
