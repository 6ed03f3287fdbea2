from .https_link import (
    HttpsLink as HttpsLink,
    site_link as site_link,
)
from .letter_server import (
    LetterServer as LetterServer,
    serve as serve,
)
from .link_requests import (
    key_in as key_in,
    key_of_certificate as key_of_certificate,
)
