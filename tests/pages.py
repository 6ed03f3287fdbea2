"""Pages read as a browser would: tags in order, each closed."""

import base64
import hashlib
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np

VOID = {"br", "img", "input", "meta"}
"""Tags that are not closed."""


class Reader(HTMLParser):
    """Keep every tag with its attributes, and check that they close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text, self.options = [], [], [], 0
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.options = 2 * (dict(attributes).get("class") == "option")  # this and what follows go on
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.options *= tag == "span"

    def handle_data(self, data):
        if self.options:
            self.text[-1] += data
            self.options -= 1
        else:
            self.text.append(data)

    def titles(self):
        """Return the texts that are more than spaces."""
        return [text.strip() for text in self.text if text.strip()]


def check_whole(text):
    """Check that a page fetches nothing, runs one program and that one alone, and has no looks of its own."""
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (program,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [
        "sha256-" + base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
        for one in (style, program)
    ]
    policy = (
        f"default-src 'none'; img-src data:; style-src '{digests[0]}'; script-src '{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    reader = Reader(text)
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in [given for _, given in reader.tags]
    kinds = [given.get("type") for tag, given in reader.tags if tag == "script"]
    assert (kinds.count(None), set(kinds) <= {None, "application/json"}) == (1, True)
    places = {given["id"] for _, given in reader.tags if "id" in given}
    led = {given["href"] for tag, given in reader.tags if tag == "a" and given["href"].startswith("#")}
    assert {one[1:] for one in led} <= places, "a section that a sentence names is not there"
    told = re.sub(r'<div class="first">.*?</div>', "", text, flags=re.DOTALL)  # which stands below, too
    outs = re.findall(r"--out</span> ([^\s<]+)", told)
    assert len(outs) == len({*outs}), "two commands that the page advises write to one folder"
    named = {name for _, given in reader.tags for name in given}
    assert not [name for name in named if name == "style" or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", text)


def bytes_of(address):
    """Return the file that an address holds."""
    return base64.b64decode(address.removeprefix("data:image/png;base64,"))


def decoded(content):
    """Read a PNG file of unfiltered rows back, every check sum held."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        chunks[kind] = content[at + 8 : at + 8 + length]
        assert (
            zlib.crc32(kind + chunks[kind])
            == struct.unpack(">I", content[at + 8 + length : at + 12 + length])[0]
        )
        at += 12 + length
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind in (2, 6), list(chunks)[-1]) == (8, True, b"IEND")
    channels = 3 if kind == 2 else 4
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + channels * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)
