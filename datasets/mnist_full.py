"""MNIST: 70,000 handwritten digits, 60,000 to train on and 10,000 to test.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits" (1998), from NIST Special Databases 1
and 3. Terms: commonly stated as Creative Commons Attribution-ShareAlike 3.0. The original host often refuses downloads,
so the four files come from public mirrors; their uncompressed content is pinned.

Record 0: image uint8 [28, 28, 1], white ink on black, 166 pixels above 0 with a sum of 27,525; label 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets.readers import idx
from datasets.schema import Block, Dataset, Feature, Files, Gate, RawFile, Recipe, Source


def read(raw: Path) -> Iterator[Block]:
    """The training digits, then the test digits, in the order of the files."""
    for part in ("train", "t10k"):
        yield from idx.blocks(raw, images=f"{part}-images-idx3-ubyte", labels=f"{part}-labels-idx1-ubyte")


DATASET = Dataset(
    about="MNIST: 70,000 handwritten digits, 28 x 28 grey",
    source=Source(
        files=(
            RawFile(
                "train-images-idx3-ubyte",
                sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                bytes=47_040_016,
            ),
            RawFile(
                "train-labels-idx1-ubyte",
                sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                bytes=60_008,
            ),
            RawFile(
                "t10k-images-idx3-ubyte",
                sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                bytes=7_840_016,
            ),
            RawFile(
                "t10k-labels-idx1-ubyte",
                sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                bytes=10_008,
            ),
        ),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
    ),
    read=read,
    features={
        "image": Feature("uint8", (28, 28, 1)),
        "label": Feature("int32", classes=tuple("0123456789")),
    },
    inputs="image",
    label="label",
    splits={"train": Files("train", count=60_000), "test": Files("t10k", count=10_000)},
    recipe=Recipe(model="cnn", epochs=4, batch_size=128, learning_rate=2e-3, dropout=0.3),
    gate=Gate(max_class_drop=0.01),
    licence="commonly stated as Creative Commons Attribution-ShareAlike 3.0",
)
