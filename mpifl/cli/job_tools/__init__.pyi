from . import keys as keys
from .beforehand import (
    check_beforehand as check_beforehand,
    check_whole as check_whole,
    summary_of as summary_of,
    whole as whole,
)
from .inventory import (
    KINDS as KINDS,
    Item as Item,
    Kind as Kind,
    summary as summary,
)
from .job_schema import (
    schema as schema,
)
from .job_writing import (
    SCHEMA as SCHEMA,
    commented as commented,
)
from .keys import (
    console_of_names as console_of_names,
    print_stacked as print_stacked,
    schema_text as schema_text,
    show_keys as show_keys,
    tables as tables,
)
from .language_runs import (
    generate_run as generate_run,
    predict_texts as predict_texts,
)
from .new_data import (
    NewData as NewData,
    kind_seen as kind_seen,
    looked_at as looked_at,
    whose as whose,
)
from .predict_files import (
    Predicting as Predicting,
    predict_arrays as predict_arrays,
    predict_images as predict_images,
    predict_shards as predict_shards,
    predict_table as predict_table,
    tell_far_shards as tell_far_shards,
)
from .shipped import (
    copy_example as copy_example,
    examples as examples,
    examples_folder as examples_folder,
    jobs as jobs,
    jobs_folder as jobs_folder,
    shipped_job as shipped_job,
)
from .split_predict import (
    evaluate_together as evaluate_together,
    predict_together as predict_together,
)
from .stats_job import (
    check_table as check_table,
    job_of_table as job_of_table,
    keys_of_noised as keys_of_noised,
    privacy_of as privacy_of,
)
from .templates import (
    MASKS as MASKS,
    PARENT as PARENT,
    RESIZED as RESIZED,
    TEMPLATES as TEMPLATES,
    Answers as Answers,
    SiteData as SiteData,
)
from .training_here import (
    check_ended as check_ended,
    joined as joined,
    trained as trained,
)
