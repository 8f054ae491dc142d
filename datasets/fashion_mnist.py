"""Fashion-MNIST: 70,000 pictures of clothes from Zalando's catalogue, 60,000 to train on and 10,000 to test.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", arXiv:1708.07747. Terms: MIT licence, copyright Zalando SE. Laid out as MNIST is, file for file.

Record 0: image uint8 [28, 28, 1], white on black, 433 pixels above 0 with a sum of 76,247; label 9, an ankle boot.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datasets.readers import idx
from datasets.schema import Block, Dataset, Feature, Files, RawFile, Recipe, Source

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
           "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # fmt: skip


def read(raw: Path) -> Iterator[Block]:
    """The training pictures, then the test pictures, in the order of the files."""
    for part in ("train", "t10k"):
        yield from idx.blocks(raw, images=f"{part}-images-idx3-ubyte", labels=f"{part}-labels-idx1-ubyte")


DATASET = Dataset(
    about="Fashion-MNIST: 70,000 pictures of clothes in ten classes, 28 x 28 grey",
    source=Source(
        files=(
            RawFile(
                "train-images-idx3-ubyte",
                sha256="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                bytes=47_040_016,
            ),
            RawFile(
                "train-labels-idx1-ubyte",
                sha256="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                bytes=60_008,
            ),
            RawFile(
                "t10k-images-idx3-ubyte",
                sha256="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                bytes=7_840_016,
            ),
            RawFile(
                "t10k-labels-idx1-ubyte",
                sha256="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                bytes=10_008,
            ),
        ),
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
    ),
    read=read,
    features={
        "image": Feature("uint8", (28, 28, 1)),
        "label": Feature("int32", classes=CLASSES),
    },
    inputs="image",
    label="label",
    splits={"train": Files("train", count=60_000), "test": Files("t10k", count=10_000)},
    recipe=Recipe(model="cnn", epochs=8, batch_size=128, learning_rate=2e-3, dropout=0.3),
    licence="MIT, copyright Zalando SE",
)
