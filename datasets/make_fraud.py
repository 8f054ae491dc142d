"""Makes the raw data of `fraud`: transfers of mobile money, as Parquet, a file a month, the same bytes every time.

No real transactions: every number is drawn here, with NumPy's PCG64 and a fixed seed. What is imitated, so that a model
meets what real ones have:

- Users differ: each has a usual amount (log-normal), usual hours, a rate (gamma) and an account age.
- About 1 % of the transfers are fraud. Most come in bursts from accounts that were taken over: a new device, a new
  receiver, high velocity, an amount that leaves little of the balance, often at night. Some hide: they look like the
  user's own transfers, so no model finds all.
- Honest transfers look odd too: new phones, large bills, payday.
- The months drift: amounts rise with inflation, new devices become more common, and from month to month fraud moves
  from large amounts to more and smaller ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = (
    "amount", "balance_share", "hour_sin", "hour_cos", "seconds_since_last", "sent_last_hour", "sent_last_day",
    "amount_over_usual", "receiver_age_days", "account_age_days", "new_device", "far_from_home",
)  # fmt: skip
MONTHS = 12
FRAUD = 0.01
SEED = 20_250_101


def write(folder: Path, *, rows: int = 500_000, users: int = 20_000, months: int = MONTHS) -> None:
    """Writes `month-01.parquet` ... into a folder.

    Each has the float32 columns `COLUMNS`, `user` (int32), `month` (int32, 1 ...) and `fraud` (int32, 0 or 1).

    Args:
        folder: An empty one.
        rows: Transfers in all.
        users: Accounts.
        months: Files.
    """
    random = np.random.Generator(np.random.PCG64(SEED))
    usual = random.normal(3.0, 0.8, users)  # of the log of amounts
    rate = random.gamma(2.0, 1.5, users)  # transfers a day
    born = random.uniform(0, 2000, users)  # days that an account is old when the year begins
    noon = random.normal(14, 2.5, users)
    weight = rate / rate.sum()
    for month, count in enumerate(_shares(rows, months), start=1):
        user = random.choice(users, count, p=weight).astype(np.int32)
        columns = _month(random, month / months, user, usual, rate, born + 30 * (month - 1), noon)
        table = pa.table({
            **{name: pa.array(columns[name].astype(np.float32)) for name in COLUMNS},
            "user": pa.array(user),
            "month": pa.array(np.full(count, month, np.int32)),
            "fraud": pa.array(columns["fraud"].astype(np.int32)),
        })  # fmt: skip
        pq.write_table(table, folder / f"month-{month:02}.parquet", compression="zstd", row_group_size=65_536)


def _month(
    random: np.random.Generator, late: float, user: np.ndarray, usual: np.ndarray, rate: np.ndarray, age: np.ndarray,
    noon: np.ndarray,
) -> dict[str, np.ndarray]:  # fmt: skip
    """One month of transfers; `late` goes from 0 to 1 over the year."""
    n = len(user)
    fraud = random.random(n) < FRAUD
    hidden = fraud & (random.random(n) < 0.15)
    loud = fraud & ~hidden

    def either(chance: float, loud_chance: float) -> np.ndarray:
        return (random.random(n) < np.where(loud, loud_chance, chance)).astype(float)

    log_amount = usual[user] + 0.08 * late + random.normal(0, 0.7, n) + 1.2 * (random.random(n) < 0.04)
    log_amount += loud * random.normal(1.6 - 1.0 * late, 0.6, n)
    hour = np.where(loud & (random.random(n) < 0.5), random.normal(3, 2, n), random.normal(noon[user], 3.5)) % 24
    per_hour = random.poisson(np.where(loud, 1.8 + 1.2 * late, rate[user] / 14))
    per_day = per_hour + random.poisson(np.where(loud, rate[user] + 2, rate[user]))
    pause = random.exponential(np.where(per_hour > 0, 1200, 86_400 / (1 + per_day)))
    share = random.beta(np.where(loud, 3.5, 1.3), np.where(loud, 1.3, 4.5))
    receiver = random.exponential(np.where(either(0.16, 0.75) > 0, 1.5, 220))
    return {
        "amount": np.exp(log_amount).clip(0.5, 50_000), "balance_share": share,
        "hour_sin": np.sin(2 * np.pi * hour / 24), "hour_cos": np.cos(2 * np.pi * hour / 24),
        "seconds_since_last": pause, "sent_last_hour": per_hour, "sent_last_day": per_day,
        "amount_over_usual": np.exp(log_amount - usual[user]).clip(0, 1000), "receiver_age_days": receiver,
        "account_age_days": age[user], "new_device": either(0.02 + 0.02 * late, 0.6),
        "far_from_home": either(0.05, 0.35), "fraud": fraud,
    }  # fmt: skip


def _shares(rows: int, months: int) -> Sequence[int]:
    """Rows of each month: the business grows by about a tenth over the year, and none is lost by rounding."""
    weights = np.linspace(1.0, 1.1, months)
    ends = np.rint(np.cumsum(weights) / weights.sum() * rows).astype(int)
    return np.diff(np.concatenate([[0], ends])).tolist()
