"""MNIST as the tutorials of Flax and Grain write it: a source of single rows, `nnx.jit`; nothing of this project."""

from __future__ import annotations

from pathlib import Path
from sys import path
from typing import Any

path.append(str(Path(__file__).parent))  # `python -P` leaves it out
from mnist_files import arguments, load, missing, tell  # pyright: ignore[reportMissingImports]

EPOCHS = 6


def main() -> None:
    """Trains and tells."""
    folder, every, batch = arguments()
    try:
        import grain
        import jax.numpy as jnp
        import numpy as np
        import optax
        from flax import nnx
    except ImportError as error:
        missing(error)
        return
    train_x, train_y, test_x, test_y = load(folder)

    class Rows:
        def __len__(self) -> int:
            return len(train_x)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"image": train_x[index, ..., None].astype(np.float32) / 255, "label": np.int32(train_y[index])}

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.conv1 = nnx.Conv(1, 32, (3, 3), use_bias=False, rngs=rngs)
            self.norm1 = nnx.BatchNorm(32, rngs=rngs)
            self.conv2 = nnx.Conv(32, 64, (3, 3), use_bias=False, rngs=rngs)
            self.norm2 = nnx.BatchNorm(64, rngs=rngs)
            self.dense = nnx.Linear(3136, 128, rngs=rngs)
            self.dropout = nnx.Dropout(0.3, rngs=rngs)
            self.out = nnx.Linear(128, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:  # noqa: ANN401
            x = nnx.relu(self.norm1(nnx.max_pool(self.conv1(x), (2, 2), (2, 2))))
            x = nnx.relu(self.norm2(nnx.max_pool(self.conv2(x), (2, 2), (2, 2))))
            return self.out(self.dropout(nnx.relu(self.dense(x.reshape(x.shape[0], -1)))))

    model = Model(nnx.Rngs(0))
    steps = EPOCHS * (len(train_x) // batch)
    optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(2e-3, steps)), wrt=nnx.Param)

    def loss_of(model: Any, rows: Any) -> Any:  # noqa: ANN401
        return optax.softmax_cross_entropy_with_integer_labels(model(rows["image"]), rows["label"]).mean()

    @nnx.jit
    def train_step(model: Any, optimizer: Any, rows: Any) -> Any:  # noqa: ANN401
        loss, gradients = nnx.value_and_grad(loss_of)(model, rows)
        optimizer.update(model, gradients)
        return loss

    @nnx.jit
    def predict(model: Any, images: Any) -> Any:  # noqa: ANN401
        return model(images).argmax(1)

    rows = grain.MapDataset.source(Rows()).shuffle(seed=0).repeat(EPOCHS).batch(batch, drop_remainder=True)
    for step, some in enumerate(rows.to_iter_dataset(), start=1):
        model.train()
        train_step(model, optimizer, some)
        if step % every == 0:
            model.eval()
            parts = np.split(test_x[..., None].astype(np.float32) / 255, 10)
            found = np.concatenate([predict(model, jnp.asarray(part)) for part in parts])
            tell(step, float((found == test_y).mean()))


if __name__ == "__main__":
    main()
