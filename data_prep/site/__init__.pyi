from .agreement import assemble as assemble, new_spec as new_spec
from .site import Site as Site, import_site as import_site
