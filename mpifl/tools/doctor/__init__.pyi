from .compiling import compile_steps as compile_steps
from .examination import examine as examine
