"""Pages read as a browser would: tags in order, each closed."""

from html.parser import HTMLParser

VOID = {"br", "img", "meta", "path"}
"""Tags that are not closed."""


class Reader(HTMLParser):
    """Keep every tag with its attributes, and check that they close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def titles(self):
        """Return the texts that are more than spaces."""
        return [text for text in self.text if text.strip()]
