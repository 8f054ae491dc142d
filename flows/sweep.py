"""Recipes held against each other over several seeds; the best goes through the gate. Started again, it goes on.

python -m flows.sweep mnist --grid learning_rate=1e-4,1e-3 --grid batch_size=64,128 --seeds 5
python -m flows.sweep mnist --search 20 --range learning_rate=1e-5,1e-2 --grid model=mlp,cnn
"""

from __future__ import annotations

import sys
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.train import Count, candidate
from tasks.command import Command
from tasks.fetch import prepared
from tasks.fingerprint_memory import RememberedSources
from tasks.grid import combinations, grid_of, ranges_of, search
from tasks.promote import promote
from tasks.publish import publish, publish_sweep
from tasks.run_record import write_run
from tasks.summary import summarise
from tasks.sweep import Sweep, show, table_of


@flow(name="sweep", flow_run_name="sweep {dataset}", validate_parameters=True, persist_result=False)
def sweep(
    dataset: str,
    grid: dict[str, Any] | None = None,
    seeds: Count = 1,
    ranges: dict[str, Any] | None = None,
    trials: Count | None = None,
    store: str | None = None,
    raw: str | None = None,
    recipe: dict[str, Any] | None = None,
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
    """
    values = grid_of(grid)
    ends = ranges_of(ranges, values)
    base = prepared(dataset, store=store, raw=raw, recipe=recipe)
    swept = Sweep(base, seeds, candidate, str(flow_run.id), RememberedSources(base.store))
    if trials is None:
        recipes = [*combinations(values)]
        for changes in recipes:
            swept.requests(changes)  # refuses what can't work before anything is trained
        for changes in recipes:
            swept.measure(changes)
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
        "winner": {"changes": swept.rows[best]["changes"], "seed": winner.seed, "run": winner.name},
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
    command.add_fields("--set", dest="recipe", help="a recipe field that is the same for all: epochs=3")
    command.add("--store", help="folder of the artifacts, relative to the checkout (default: store)", text=True)
    command.add("--raw", help="folder of raw files to use instead of the source", text=True)
    sys.exit(command.run(sweep, show))
