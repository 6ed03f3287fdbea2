from .changes import Changes as Changes, told_of as told_of
from .dates import (
    CENTURY as CENTURY,
    ISO as ISO,
    SHORT as SHORT,
    days_of as days_of,
    forms_of as forms_of,
    is_form as is_form,
    likeliest as likeliest,
    no_form as no_form,
)
from .filled import Filled as Filled
from .gaps import Gaps as Gaps, marked as marked, without_gaps as without_gaps
from .holding import Named as Named, Places as Places, held_of as held_of, keys_of as keys_of
from .id_columns import (
    is_category as is_category,
    is_index as is_index,
    is_named_id as is_named_id,
    is_of_persons as is_of_persons,
    looks_like_id as looks_like_id,
)
from .moments import (
    Moments as Moments,
    moments_of as moments_of,
    read_moments as read_moments,
)
from .notation import PLAIN as PLAIN, Notation as Notation
from .piece import (
    MARKS as MARKS,
    MISSING as MISSING,
    Piece as Piece,
    ordered as ordered,
    some as some,
)
from .rounding import Rounding as Rounding
from .spellings import (
    AS_NUMBERS as AS_NUMBERS,
    check_spellings as check_spellings,
    likely as likely,
    listed as listed,
    meaning as meaning,
    respelled as respelled,
    spelled as spelled,
)
from .tallied_tables import tallied as tallied
from .tallying import (
    FEW as FEW,
    MOST_NUMBERS as MOST_NUMBERS,
    MOST_TEXTS as MOST_TEXTS,
    Tally as Tally,
    line_of as line_of,
)
from .texts import (
    Texts as Texts,
    number as number,
    padded as padded,
    stripped as stripped,
    without as without,
)
