from .folder_link import (
    FolderLink as FolderLink,
)
from .letter_format import (
    LetterHeader as LetterHeader,
)
from .letter_names import (
    NAME as NAME,
    Blocked as Blocked,
    FileMark as FileMark,
    LetterFault as LetterFault,
    LetterLink as LetterLink,
    NotThere as NotThere,
    letter_of as letter_of,
)
from .letter_records import (
    LAST_NUMBER as LAST_NUMBER,
    WITHDRAW as WITHDRAW,
    AnswerRecord as AnswerRecord,
    AskRecord as AskRecord,
    EndRecord as EndRecord,
    HelloRecord as HelloRecord,
    HelloSilo as HelloSilo,
    LetterRecord as LetterRecord,
    Member as Member,
    NoRecord as NoRecord,
    RunId as RunId,
    Settled as Settled,
    ShareRecord as ShareRecord,
    SignedHeader as SignedHeader,
    SumHeader as SumHeader,
    SumRecord as SumRecord,
    WelcomeRecord as WelcomeRecord,
    WithdrawRecord as WithdrawRecord,
)
from .link_looks import (
    REMINDER as REMINDER,
    looks as looks,
)
from .mailbox import (
    Mailbox as Mailbox,
)
from .sealed_letter import (
    Letter as Letter,
    Post as Post,
    Sealed as Sealed,
    header_of as header_of,
    most_bytes as most_bytes,
)
from .site_journal import (
    Journal as Journal,
    JournalLine as JournalLine,
    Superseded as Superseded,
)
