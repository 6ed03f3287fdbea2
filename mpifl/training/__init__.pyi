from . import loop as loop
from .accounting import figures_of_plan as figures_of_plan, plans as plans, refuse_without as refuse_without
from .agreement import agree as agree
from .architectures import models_of as models_of
from .at_site import user_name as user_name
from .bits import (
    BITS as BITS,
    PROCESSOR as PROCESSOR,
    about_bits as about_bits,
    about_plain as about_plain,
    differing as differing,
)
from .devices import (
    device_name as device_name,
    device_of as device_of,
    place_on_gpus as place_on_gpus,
    threads_of as threads_of,
)
from .scripting import Run as Run, train as train
from .silo_level import (
    figures_of_rounds as figures_of_rounds,
    loudness as loudness,
    mechanism_of as mechanism_of,
)
from .together import Network as Network, all_together as all_together
from .trial import Trial as Trial, try_batching as try_batching
from .validation import (
    check_privacy as check_privacy,
    parameters_of as parameters_of,
    validate_job as validate_job,
)
from .vertical import placement as placement
