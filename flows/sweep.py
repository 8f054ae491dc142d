"""Recipes held against each other over several seeds; the best goes through the gate. Started again, it goes on.

python -m flows.sweep mnist --grid learning_rate=1e-4,1e-3 --grid batch_size=64,128 --seeds 5
python -m flows.sweep mnist --search 20 --range learning_rate=1e-5,1e-2 --grid model=mlp,cnn
"""

from __future__ import annotations

import sys
from typing import Any, Literal

from prefect import flow
from prefect.runtime import flow_run

from flows.train import Count, candidate, ready
from tasks.command import Command
from tasks.fetch import prepared
from tasks.fingerprint_memory import RememberedSources
from tasks.grid import combinations, grid_of, ranges_of, search
from tasks.left_running import end_stages
from tasks.one_program import Ranking
from tasks.promote import promote
from tasks.publish import publish, publish_sweep
from tasks.run_record import write_run
from tasks.server import NO_RESULTS
from tasks.summary import summarise
from tasks.sweep import Sweep
from tasks.sweep_table import show, table_of


@flow(
    name="sweep",
    flow_run_name="sweep {dataset}",
    validate_parameters=True,
    persist_result=False,
    result_storage=NO_RESULTS,
    on_crashed=[end_stages],
)
def sweep(
    dataset: str,
    grid: dict[str, Any] | None = None,
    seeds: Count = 1,
    ranges: dict[str, Any] | None = None,
    trials: Count | None = None,
    store: str | None = None,
    raw: str | None = None,
    recipe: dict[str, Any] | None = None,
    members: Literal["pilot", "together", "one-by-one"] = "pilot",
    memory: Count | None = None,
    confirm: bool = False,
) -> dict[str, Any]:
    """Trains recipes with several seeds each, chooses one, and holds it against the champion.

    Args:
        dataset: Name of a file under `datasets/`.
        grid: Values of recipe fields: {"learning_rate": [1e-4, 1e-3]}; every combination is tried.
        seeds: Trainings of each recipe.
        ranges: Ends of recipe fields for a search: {"learning_rate": [1e-5, 1e-2]}.
        trials: Recipes that a search tries; all of the grid, without a search, if empty.
        store: Folder of the artifacts.
        raw: Folder of raw files to use instead of the dataset's source.
        recipe: Fields of the recipe that are the same for all.
        members: How trainings that differ in learning rate and seed are ranked: "together", as one program;
            "one-by-one", as ordinary trainings; or as a "pilot" of a few steps finds faster.
        memory: Bytes that such a program may take; half of what is free if empty.
        confirm: Whether a winner of such a program is trained with every seed instead of with one.
    """
    values = grid_of(grid)
    ends = ranges_of(ranges, values)
    base = prepared(dataset, store=store, raw=raw, recipe=recipe)
    swept = Sweep(base, seeds, candidate, str(flow_run.id), RememberedSources(base.store),
                  Ranking(ready, members, memory), confirm=confirm)  # fmt: skip
    if trials is None:
        recipes = [*combinations(values)]
        for changes in recipes:
            swept.requests(changes)  # refuses what can't work before anything is trained
        swept.measure_all(recipes)
    else:
        search(values, ends, trials, swept.seeds[0], lower=swept.lower, measure=swept.measure)
    best, winner = swept.winner()
    promote(winner.run, **winner.made)
    summary = summarise(winner.run, str(flow_run.id))
    write_run(winner.run, summary)
    publish(winner.run, summary)
    made = {
        **swept.to_json(),
        "run": summary["run"],
        "winner": {
            "changes": swept.rows[best]["changes"],
            "seed": winner.seed,
            "run": winner.name,
            "score": winner.score,
        },
        "decision": summary["decision"],
        "champion": summary["champion"],
    }
    publish_sweep(made, table_of(made))
    return made


if __name__ == "__main__":
    command = Command("flows.sweep", __doc__)
    command.add("dataset", help="name of a file under datasets/", text=True)
    command.add_fields("--grid", dest="grid", help="values of a recipe field: learning_rate=1e-4,1e-3")
    command.add("--seeds", help="trainings of each recipe (default: 1)")
    command.add_fields("--range", dest="ranges", help="ends of a recipe field for --search: learning_rate=1e-5,1e-2")
    command.parser.add_argument("--search", dest="trials", type=int, help="recipes that Optuna proposes (needs optuna)")
    command.add("--members", help="together: rank rates and seeds as one program; one-by-one: train each by itself;\n"
                "pilot (default): as a few steps of each show to be faster", text=True)  # fmt: skip
    command.add("--memory", help="bytes that one program may take (default: half of what is free)")
    command.add_flag("--confirm", help="train the winner of one program with every seed, not only with one")
    command.add_fields("--set", dest="recipe", help="a recipe field that is the same for all: epochs=3")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    command.add("--raw", help="folder of raw files to use instead of the source", text=True)
    sys.exit(command.run(sweep, show))
