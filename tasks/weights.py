"""A trained model on disk: its arrays in a safetensors file, and in JSON what it takes to build it again.

Format: https://huggingface.co/docs/safetensors; a header in JSON, then raw little-endian arrays. Equal arrays give
equal bytes, nothing in it can run code, and any language reads it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from safetensors.numpy import load_file, save

from datasets.errors import CheckpointMismatch, GristmillError, ParameterError
from datasets.schema import Dataset, Feature
from tasks.durable import read_json, write_bytes, write_json
from tasks.fitted import Fitted, read_fitted, unit_of

WEIGHTS = "weights.safetensors"
MODEL = "model.json"
LEARNED = (nnx.Param, nnx.BatchStat)


def build_model(
    name: str, feature: Feature, classes: int, *, dropout: float, seed: int, precision: str = "float32"
) -> nnx.Module:
    """A fresh model of `tasks/models/<name>.py`; the seed decides its first weights and its dropout.

    It has an output for each class, or one for a number, which has 0 classes.

    Raises:
        ParameterError: The model can't compute in `precision`: its `build` takes no `dtype`.
    """
    build = importlib.import_module(f"tasks.models.{name}").build
    options = {}
    if precision != "float32":
        if "dtype" not in inspect.signature(build).parameters:
            raise ParameterError(
                f"model {name} computes in float32 only", parameter="precision", got=precision,
                cure=f"let build() in tasks/models/{name}.py take dtype=, as those of mlp and cnn do",
            )  # fmt: skip
        options["dtype"] = jax.numpy.dtype(precision)
    return build(feature, classes or 1, dropout=dropout, rngs=nnx.Rngs(params=seed, dropout=seed + 1), **options)


def save_weights(folder: Path, model: nnx.Module, dataset: Dataset) -> None:
    """Writes `weights.safetensors` (parameters and BatchNorm statistics) and `model.json` into `folder`."""
    arrays = {path: np.ascontiguousarray(jax.device_get(leaf)) for path, leaf in learned(model).items()}
    write_bytes(folder / WEIGHTS, save(arrays))
    write_json(folder / MODEL, {
        "model": dataset.recipe.model,
        "inputs": dataset.inputs,
        "label": dataset.label,
        "feature": asdict(dataset.features[dataset.inputs]),
        "classes": list(dataset.features[dataset.label].classes),
        "precision": dataset.recipe.precision,
    })  # fmt: skip


def load_model(folder: Path) -> tuple[nnx.Module, dict[str, Any]]:
    """The model in eval mode, and its `model.json`; a number that it estimates is in the unit of the records.

    Raises:
        ArtifactDamaged: The transforms beside it can't be read.
        CheckpointMismatch: The arrays on disk aren't those of the model that today's code builds; each is named.
    """
    card = read_json(folder / MODEL)
    feature = replace(Feature.from_json(card["feature"]), classes=())
    try:
        model = build_model(
            card["model"], feature, len(card["classes"]), dropout=0.0, seed=0, precision=card["precision"]
        )
    except (ImportError, GristmillError) as error:
        raise CheckpointMismatch(
            "the weights are of a model that today's code can't build", file=folder / WEIGHTS, model=card["model"],
            reason=str(error), cure="train again with today's code",
        ) from error  # fmt: skip
    arrays, wanted = load_file(folder / WEIGHTS), learned(model)
    differences = [
        f"{path}: stored {describe(arrays.get(path))}, wanted {describe(wanted.get(path))}"
        for path in sorted({*arrays, *wanted})
        if describe(arrays.get(path)) != describe(wanted.get(path))
    ]
    if differences:
        raise CheckpointMismatch(
            "the weights are of another model", file=folder / WEIGHTS, differences="; ".join(differences),
            cure="train again with today's code",
        )  # fmt: skip
    put(model, arrays)
    model = in_unit(model, None if card["classes"] else read_fitted(folder), card["label"])
    model.eval()
    return model, card


class InUnit(nnx.Module):
    """A model of a number that was trained on standardised labels: its output is put back into their unit.

    Args:
        model: With one output.
        mean: Of the labels of the train split.
        std: Their standard deviation.
    """

    def __init__(self, model: Any, mean: float, std: float) -> None:  # noqa: ANN401
        self.model, self.mean, self.std = model, mean, std

    def __call__(self, x: jax.Array) -> jax.Array:
        """What the model says, float32 [batch, 1]."""
        return self.model(x) * self.std + self.mean


def in_unit(model: nnx.Module, fitted: Fitted | None, label: str) -> nnx.Module:
    """A model whose number is in the unit of the records, given what the transforms learned; any other as it is."""
    unit = unit_of(fitted, label)
    return model if unit is None else InUnit(model, *unit)


def put(model: nnx.Module, arrays: Mapping[str, Any]) -> None:
    """Makes `arrays` the parameters and BatchNorm statistics of a model; there must be one for each path."""
    state = nnx.state(model, LEARNED)
    paths = [_name(path) for path, _ in jax.tree.leaves_with_path(state)]
    nnx.update(model, jax.tree.unflatten(jax.tree.structure(state), [jax.numpy.asarray(arrays[p]) for p in paths]))


def learned(model: nnx.Module) -> dict[str, jax.Array]:
    """Parameters and BatchNorm statistics of a model, by path such as "hidden.kernel"."""
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(nnx.state(model, LEARNED))}


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")


def describe(array: Any) -> str:  # noqa: ANN401
    """Dtype and shape of an array, "nothing" for None."""
    return "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
