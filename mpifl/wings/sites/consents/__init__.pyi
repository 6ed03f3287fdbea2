from .consent_file import (
    ConsentedRun as ConsentedRun,
    ConsentLedger as ConsentLedger,
    add_consent as add_consent,
    admitted as admitted,
    read_consents as read_consents,
    remove_consent as remove_consent,
)
from .consented_job import (
    code_in as code_in,
    federation_digest as federation_digest,
    in_singles as in_singles,
    job_digest as job_digest,
    paths_in as paths_in,
    shared_job as shared_job,
)
from .consented_numbers import (
    ConsentedNumbers as ConsentedNumbers,
)
from .consenting import (
    consent_to as consent_to,
    shown as shown,
)
from .invitation import (
    FEWEST_DIGITS as FEWEST_DIGITS,
    FILE as FILE,
    HttpsServer as HttpsServer,
    Invitation as Invitation,
    invitation_in as invitation_in,
    read_invitation as read_invitation,
    signed_invitation as signed_invitation,
    write_invitation as write_invitation,
)
from .own_code import (
    code_digest as code_digest,
)
from .roster import (
    check_roster as check_roster,
    in_fours as in_fours,
    number_of as number_of,
    roster_of as roster_of,
)
from .run_home import (
    INBOX as INBOX,
    SESSION_KEY as SESSION_KEY,
    TRAINING as TRAINING,
    RunHome as RunHome,
)
from .sent_file import (
    SentFile as SentFile,
)
