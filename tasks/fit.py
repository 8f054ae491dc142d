"""Stage `fit`: trains the model of the recipe, or goes on with a training that was stopped, and keeps the weights."""

from __future__ import annotations

from typing import Any

from tasks.artifact import Artifact
from tasks.request import Request
from tasks.stage import Job, Run, Stage


def fit_model(
    job: Job, records: Artifact, report: Artifact, plan: Artifact, transforms: Artifact | None = None
) -> Artifact:
    """Weights after the recipe's epochs, with the metrics of every step.

    The checkpoints of a training lie in a folder named by this stage's key, so a retry, a rerun or tomorrow's run of
    the same thing goes on with the same training, and anything else starts its own.

    Raises:
        StoreError: The report vouches for other records than these.
        NonFiniteError: A loss or gradient was NaN or infinite.
        TraceBudgetExceeded: The step needed another trace.
        CheckpointError: A checkpoint can't be written or read.
        TrainingError: One of several processes died.
    """
    if job.request.parallel.processes > 1 and not in_one_of_several():
        from tasks.processes import train_together

        inputs = {"records": records, "report": report, "plan": plan}
        return train_together(job, inputs if transforms is None else {**inputs, "transforms": transforms})
    from tasks.training import train  # JAX loads only when there is something to train

    return train(job, records, report, plan)


def in_one_of_several() -> bool:
    """Whether this process has joined others for a training."""
    import jax

    return jax.distributed.is_initialized()


def reads(run: Run) -> dict[str, Any]:
    """What of the request decides a training."""
    dataset = run.request.dataset
    return {
        # Another program rounds differently: no run without the checks may take what one with them made.
        **({"debug_checks": True} if run.request.debug_checks else {}),
        **run.request.parallel.in_key(),
        "recipe": dataset.recipe,
        "inputs": dataset.inputs,
        "label": dataset.label,
        # Its bounds scale what the model sees, and both are kept beside the weights.
        "feature": dataset.features[dataset.inputs],
        "classes": dataset.features[dataset.label].classes,
        "warm_start": None if run.request.warm_start is None else run.request.warm_start.digest,
        "layout": {name: (feature.dtype, feature.shape) for name, feature in dataset.features.items()},
    }


def part_of(request: Request) -> str:
    """Which process this run starts, where each host's run starts its own."""
    return "" if request.parallel.process is None else f"-{request.parallel.process}"


def model_code(request: Request) -> tuple[str, ...]:
    """The model is found by name, so its code is named here: no import leads to it."""
    return (f"tasks.models.{request.dataset.recipe.model}:build",)


fit = Stage(
    "fit",
    fit_model,
    reads,
    libraries=("jax", "jaxlib", "flax", "optax", "numpy"),
    advisory=frozenset({"report", "plan"}),
    code=model_code,
    part=part_of,
)
