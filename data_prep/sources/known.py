"""The data sets that `--fetch` knows: where their publishers have them,
how long they are and what they hash to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """A file to fetch.

    Attributes:
        url: Where it is; the last part of its path is the file's name.
        size: Its length in bytes.
        digest: `md5:` or `sha256:` and its hash in hexadecimal. An md5, where the publisher states no more,
            tells a damaged download; one that someone altered on the way with care could match it.
        members: Of a tar archive: the files in it that are unpacked beside it, by their names without
            folders.
    """

    url: str
    size: int
    digest: str
    members: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.url.rpartition("/")[2]


_MEMBERS = {
    "cifar10": (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin", "batches.meta.txt"),
    "cifar100": ("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"),
}
"""The files of an archive that are unpacked, by the source's name."""
_FILES = """
mnist https://ossci-datasets.s3.amazonaws.com/mnist
 train-images-idx3-ubyte.gz 9912422 sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
 train-labels-idx1-ubyte.gz 28881 sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
 t10k-images-idx3-ubyte.gz 1648877 sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
 t10k-labels-idx1-ubyte.gz 4542 sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
fashion-mnist http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
 train-images-idx3-ubyte.gz 26421880 sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
 train-labels-idx1-ubyte.gz 29515 sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
 t10k-images-idx3-ubyte.gz 4422102 sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
 t10k-labels-idx1-ubyte.gz 5148 sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
cifar10 https://www.cs.toronto.edu/~kriz
 cifar-10-binary.tar.gz 170052171 md5:c32a1d4ab5d03f1284b67883e8d87530
cifar100 https://www.cs.toronto.edu/~kriz
 cifar-100-binary.tar.gz 168513733 md5:03b5dce01913d631647c71ecec9e9cb8
adult https://archive.ics.uci.edu/ml/machine-learning-databases/adult
 adult.data 3974305 sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d
 adult.test 2003153 sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05
heart-disease https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease
 processed.cleveland.data 18461 sha256:a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8
 processed.hungarian.data 10263 sha256:d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796
 processed.switzerland.data 4109 sha256:834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314
 processed.va.data 6737 sha256:e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f
tinyshakespeare https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare
 input.txt 1115394 sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
"""
"""Each source and its folder at the publisher's, and below it a file a line: its name, length and digest.

yann.lecun.com, where MNIST was published, refuses downloads. The md5 of MNIST and Fashion-MNIST (their
publishers'), of Adult and of Heart Disease (as FLamby and others check it) were held against files of these
sha256. Project Gutenberg revises its Shakespeare and states no hash: it is not here.
"""


def _known(lines: Sequence[str]) -> dict[str, list[Remote]]:
    found: dict[str, list[Remote]] = {}
    name = folder = ""
    for first, *more in map(str.split, lines):
        if len(more) == 1:
            name, folder = first, more[0]
        else:
            members = _MEMBERS.get(name, ())
            found.setdefault(name, []).append(Remote(f"{folder}/{first}", int(more[0]), more[1], members))
    return found


KNOWN = _known(_FILES.strip().splitlines())
"""By the source's name."""
