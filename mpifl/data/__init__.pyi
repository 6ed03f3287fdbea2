from .distinct import check_times as check_times, merged as merged
from .features import (
    FEATURE_DTYPES as FEATURE_DTYPES,
    ArrayForm as ArrayForm,
    Classes as Classes,
    Features as Features,
    Inputs as Inputs,
    check_features as check_features,
    check_masks as check_masks,
)
from .ragged_arrays import (
    OFFSETS as OFFSETS,
    Column as Column,
    Ragged as Ragged,
    flat as flat,
    form_of as form_of,
    ragged_of as ragged_of,
)
from .targets import (
    Aims as Aims,
    Array as Array,
    Targets as Targets,
    aims_by_path as aims_by_path,
    check_arrays as check_arrays,
    check_counts as check_counts,
    check_forms as check_forms,
    check_kind as check_kind,
    check_labels as check_labels,
    check_picked as check_picked,
    check_target_form as check_target_form,
    label_counts as label_counts,
    place as place,
    told as told,
)
from .tensors import (
    Tensors as Tensors,
    columns_of as columns_of,
    cut as cut,
    each as each,
    rows as rows,
    rows_at as rows_at,
    sliced as sliced,
)
