"""MNIST as a Keras script: `fit` with a callback that evaluates; imports nothing of this project."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from sys import path
from typing import Any

path.append(str(Path(__file__).parent))  # `python -P` leaves it out
from mnist_files import arguments, load, missing, tell

EPOCHS = 6


def main() -> None:
    """Trains and tells."""
    folder, every, batch = arguments()
    try:
        import keras
        from keras import layers
    except ImportError as error:
        missing(error)
        return
    keras.utils.set_random_seed(0)
    train_x, train_y, test_x, test_y = load(folder)
    steps = EPOCHS * (len(train_x) // batch)

    def block(width: int) -> list[Any]:
        return [
            layers.Conv2D(width, 3, padding="same", use_bias=False), layers.MaxPooling2D(2),
            layers.BatchNormalization(), layers.ReLU(),
        ]  # fmt: skip

    model = keras.Sequential([
        layers.Input((28, 28, 1)), layers.Rescaling(1 / 255), *block(32), *block(64), layers.Flatten(),
        layers.Dense(128, activation="relu"), layers.Dropout(0.3), layers.Dense(10),
    ])  # fmt: skip
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=1e-4), loss, metrics=["accuracy"])

    class Tell(keras.callbacks.Callback):
        step = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ANN401
            self.step += 1
            if self.step % every == 0:
                found = self.model.predict(test_x[..., None], batch_size=1000, verbose=0).argmax(1)
                tell(self.step, float((found == test_y).mean()))

    model.fit(train_x[..., None], train_y, batch_size=batch, epochs=EPOCHS, verbose=0, callbacks=[Tell()])


if __name__ == "__main__":
    main()
