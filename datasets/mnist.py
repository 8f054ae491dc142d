"""The bundled sample of MNIST: the first 10,000 of its 60,000 training digits. A sample, not the benchmark.

Its test split is cut from the training digits of MNIST, so its accuracy can't be compared with published figures; the
whole of MNIST is `mnist_full`.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits" (1998), from NIST Special Databases 1
and 3. Terms: commonly stated as Creative Commons Attribution-ShareAlike 3.0.

Record 0: image uint8 [28, 28, 1], white ink on black, 166 pixels above 0 with a sum of 27,525; label 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets.nightly import Nightly
from datasets.readers import idx
from datasets.schema import Block, Dataset, Feature, RawFile, Recipe, Rows, Source


def read(raw: Path) -> Iterator[Block]:
    """All 10,000 digits, in the order of the files."""
    yield from idx.blocks(raw, images="train-images-idx3-ubyte", labels="train-labels-idx1-ubyte")


DATASET = Dataset(
    about="A sample of MNIST: its first 10,000 training digits, 28 x 28 grey, 9,000 to train on and 1,000 to test",
    source=Source(
        folder="bundled/mnist-10k",
        files=(
            RawFile(
                "train-images-idx3-ubyte",
                sha256="2889698e6bc3614913e76901316712919d1998fc2b44512451bfe65bc1e668b1",
                bytes=7_840_016,
            ),
            RawFile(
                "train-labels-idx1-ubyte",
                sha256="651e38e2ac0632f5113ec18f1df4977117f953197819034009971a6675a0df78",
                bytes=10_008,
            ),
        ),
    ),
    read=read,
    features={
        "image": Feature("uint8", (28, 28, 1)),
        "label": Feature("int32", classes=tuple("0123456789")),
    },
    inputs="image",
    label="label",
    splits={"train": Rows(0, 9_000), "test": Rows(9_000, 10_000)},
    recipe=Recipe(model="cnn", epochs=5, batch_size=128, learning_rate=2e-3, dropout=0.3),
    nightly=Nightly("0 2 * * *", timezone="UTC"),
    licence="commonly stated as Creative Commons Attribution-ShareAlike 3.0",
)
