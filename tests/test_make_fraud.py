from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.make_fraud import COLUMNS, MONTHS, write

ROWS = 60_000


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> list[pa.Table]:
    folder = tmp_path_factory.mktemp("fraud")
    write(folder, rows=ROWS, users=3000)
    return [pq.read_table(path) for path in sorted(folder.iterdir())]


def test_a_file_a_month_with_every_row(months: list[pa.Table]) -> None:
    assert len(months) == MONTHS
    assert sum(table.num_rows for table in months) == ROWS
    assert [table["month"].unique().to_pylist() for table in months] == [[i] for i in range(1, MONTHS + 1)]
    for table in months:
        assert table.column_names == [*COLUMNS, "user", "month", "fraud"]
        assert {str(table.schema.field(name).type) for name in COLUMNS} == {"float"}
        assert str(table.schema.field("user").type) == "int32"
        assert all(np.isfinite(table[name].to_numpy()).all() for name in COLUMNS)


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    digests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, rows=3000, users=100, months=3)
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((tmp_path / name).iterdir())])
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 3


def test_one_in_a_hundred_is_fraud_in_every_part_of_the_year(months: list[pa.Table]) -> None:
    shares = [table["fraud"].to_numpy().mean() for table in months]
    assert np.mean(shares) == pytest.approx(0.01, abs=0.0015)
    assert min(shares) > 0.005


def test_the_data_is_as_such_data_is(months: list[pa.Table]) -> None:
    def column(name: str, fraud: int, part: slice = slice(None)) -> np.ndarray:
        return np.concatenate([t[name].to_numpy()[t["fraud"].to_numpy() == fraud] for t in months[part]])

    assert np.median(column("amount_over_usual", 1)) > 1.5 * np.median(column("amount_over_usual", 0))
    assert column("sent_last_hour", 1).mean() > 3 * column("sent_last_hour", 0).mean()
    assert 0.3 < column("new_device", 1).mean() < 0.8  # some fraud hides
    assert column("new_device", 0).mean() > 0.01  # and honest users buy phones
    late, early = slice(9, 12), slice(0, 3)
    assert column("new_device", 0, late).mean() > 1.2 * column("new_device", 0, early).mean()
    assert np.median(column("amount_over_usual", 1, late)) < 0.8 * np.median(column("amount_over_usual", 1, early))
    np.testing.assert_allclose(column("hour_sin", 0) ** 2 + column("hour_cos", 0) ** 2, 1, rtol=1e-5)
