from .flags import with_scheme_options as with_scheme_options
from .site_commands import app as app
