"""The training step of several members at once: one program, traced and compiled once, vectorised over the members.

Members are trainings of one architecture that differ in learning rate and seed: each has its own weights, random state,
order of examples, batch, optimizer state, and latch. A bad batch of one freezes that one, to the bit, and the others go
on. The learning rate is an array in the optimizer's state, so that no rate is part of the program.

A vectorised program may round in another way than that of a single training. So what comes out ranks recipes, and no
weights of it are kept: see `together.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from datasets.errors import ParameterError
from datasets.schema import Dataset, Recipe
from tasks.carry import Carry
from tasks.leaves import put
from tasks.objective import Objective, policy
from tasks.optimizers import SCALE, build_optimizer
from tasks.recipe_changes import BATCHED, common_recipe
from tasks.step import Batch, TrainStep, beginning_of, finite_leaves, leaf_paths


class VmappedStep(TrainStep):
    """A `TrainStep` of several members: every array of its carry, batch and metrics has them as its first axis.

    Attributes:
        members: Their recipes.
        objective: Of the first member.
    """

    def __init__(
        self, dataset: Dataset, members: Sequence[Recipe], total_steps: int, weights: np.ndarray | None = None
    ) -> None:
        """Traces and compiles; touches no data.

        Args:
            dataset: Whose recipe is that of the members, but for the fields of BATCHED.
            members: Recipes.
            total_steps: Of the training.
            weights: Of classes, as in `Objective`.

        Raises:
            ParameterError: Members differ in more than that.
        """
        common = common_recipe(members[0])
        if any(common_recipe(member) != common for member in members):
            raise ParameterError("these recipes can't be one program", expected=f"equal but for {', '.join(BATCHED)}")
        self.members, self._dataset = tuple(members), dataset
        self._tx = build_optimizer(common, total_steps, scaled=True)
        self.objective = Objective(replace(dataset, recipe=members[0]), weights)
        super().__init__(
            self.objective.model, self._tx, self.objective.loss, dataset.features, common.batch_size,
            policy=policy(common), name=f"train_{len(members)}_members",
        )  # fmt: skip

    def function(self, carry: Carry, batch: Batch) -> tuple[Carry, dict[str, jax.Array]]:
        """The step of one member, vectorised."""
        return jax.vmap(super().function)(carry, batch)

    def abstract_carry(self) -> Carry:
        """Shapes, dtypes and sharding of the members' carries."""
        return self._with_members(super().abstract_carry())

    def abstract_batch(self, sharding: jax.sharding.Sharding | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes, dtypes and sharding of the members' batches."""
        return self._with_members(super().abstract_batch(sharding))

    def initial_carry(self) -> Carry:
        """The members' carries at step 0: each has the weights that its seed gives to a training of its own."""
        models = (Objective(replace(self._dataset, recipe=member)).model for member in self.members)
        starts = [beginning_of(model, self._tx)[2] for model in models]
        stacked = jax.tree.map(lambda *leaves: put(jnp.stack(leaves), self.sharding), *starts)
        peaks = put(np.array([member.learning_rate for member in self.members], np.float32), self.sharding)
        ours = [path.endswith(SCALE) for path in leaf_paths(stacked)]
        leaves = [peaks if own else leaf for own, leaf in zip(ours, jax.tree.leaves(stacked), strict=True)]
        return jax.tree.unflatten(jax.tree.structure(stacked), leaves)

    def member(self, carry: Carry, at: int) -> Carry:
        """The carry of one member, as that of a training of its own."""
        return jax.tree.map(lambda leaf: leaf[at], carry)

    def sound(self, carry: Carry) -> np.ndarray:
        """Which members' states are finite, bool [members]; see `poisoned`."""
        return np.asarray(jax.vmap(finite_leaves)(carry.state).all(axis=1))

    @property
    def memory(self) -> int:
        """Bytes that the program takes, as XLA counts them: the carry, a batch, and what it needs besides."""
        analysis = self._compiled.memory_analysis()
        if analysis is None:  # a backend that doesn't count
            return 0
        sizes = (analysis.argument_size_in_bytes, analysis.output_size_in_bytes, analysis.temp_size_in_bytes)
        return sum(sizes) - analysis.alias_size_in_bytes

    def _with_members(self, tree: Any) -> Any:  # noqa: ANN401
        members = len(self.members)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype, sharding=x.sharding), tree
        )  # fmt: skip
