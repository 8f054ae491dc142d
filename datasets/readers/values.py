"""Raw values into declared features: the one set of rules for tables, JSON Lines and arrays.

A feature's dtype is declared in the dataset file and never guessed, so a column means the same in the first and the
last block, in every file order and at every block size. The rules:

- Whole numbers and floats keep their value or are refused: no wrapping, no rounding of a float into a whole number, no
  overflow to infinity. A float that is whole (pandas writes 3 as 3.0 beside nulls) fits a whole-number feature.
- null, an empty text, the spellings in `MISSING` and NaN are missing. Missing values are refused, unless the reader was
  given a value to fill in for that feature; infinities are refused always.
- Text in front of a feature with classes is a class name, to the letter ("001", "NA" and " cat" stay what they are).
  Text or numbers that are no class name but whole numbers are indices, unless class names are themselves other numbers;
  true and false are class names where there are such, else 1 and 0.
- Text in front of a uint8 feature of shape (n,) is its UTF-8 bytes, padded with zeros; longer text is refused.
- Whole numbers that aren't text, in front of a uint8 feature of shape (8,), are their 8 bytes, little-endian: so ids
  beyond int32, which no device would hold, can decide splits.
- Lists fit a feature when every one has the declared length; or any, where the feature's length varies.
- A time or date in front of a feature of whole numbers is the seconds since 1970 began, in UTC where it says no zone;
  what is finer is cut off. Text is a time only where the reader is told so (`times.py`).
- Text in front of a "string" feature is itself, "" and "NA" too; of a "bytes" feature, its UTF-8. Null is refused.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets.errors import ParameterError, SchemaError
from datasets.ragged import Ragged
from datasets.readers.faults import Place
from datasets.schema import Feature

MISSING = frozenset({"", "NA", "N/A", "n/a", "NULL", "Null", "null", "None", "NaN", "nan", "-nan", "#N/A"})
WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
WIDE = (8,)  # bytes of a whole number
TRUTH = {"true": 1, "false": 0, "1": 1, "0": 0}


def check_fill(features: Mapping[str, Feature], fill: Mapping[str, float]) -> None:
    """Raises ParameterError unless each value to fill in belongs to a number feature that can hold it."""
    for name, value in fill.items():
        feature = features.get(name)
        if feature is None:
            raise ParameterError(
                "there's no such feature to fill", parameter="fill", got=name, known=", ".join(features)
            )
        if np.dtype(feature.dtype).kind != "f" and not float(value).is_integer():
            raise ParameterError(
                "this can't be filled in", parameter="fill", field=name, got=value, expected=feature.dtype
            )


def from_arrow(array: pa.Array, feature: Feature, place: Place, fill: float | None = None) -> np.ndarray:
    """Values of one column as a feature.

    Args:
        array: [rows] of numbers, truth values, text or lists.
        feature: What they are declared to be.
        place: For the faults, which it gathers; what is returned for faulty rows has no meaning.
        fill: For missing values; None refuses them.

    Returns:
        [rows, *feature.shape] with the feature's dtype.

    Raises:
        SchemaError: The column is of a type that can't be this feature at all.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return from_arrow(array.dictionary_decode(), feature, place, fill)
    if feature.varies:
        return _varying(array, feature, place, fill)
    if pa.types.is_decimal(kind):
        return from_arrow(_from_decimals(array, feature), feature, place, fill)
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if is_time and np.dtype(feature.dtype).kind in "iu" and not feature.classes:
        seconds = array.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return from_arrow(seconds, feature, place, fill)
    if pa.types.is_null(kind):
        if fill is None:
            place.fault("null", np.ones(len(array), bool), array, "a value")
        return np.full((len(array), *feature.shape), fill or 0, feature.dtype)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _from_lists(array, feature, place, fill)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if text and feature.dtype == "uint8" and len(feature.shape) == 1:
        return _from_bytes(array, feature.shape[0], place)
    if pa.types.is_integer(kind) and feature.dtype == "uint8" and feature.shape == WIDE:
        wide = _from_numbers(array, Feature("int64"), place, fill).astype("<i8")
        return wide.view(np.uint8).reshape(len(array), *WIDE)
    if math.prod(feature.shape) != 1:
        raise _other_type(array, feature, place)
    if text and feature.classes:
        values = _from_names(array, feature, place)
    elif text:
        values = _from_text(array, feature, place, fill)
    elif feature.classes and pa.types.is_boolean(kind) and {"true", "false"} & {c.lower() for c in feature.classes}:
        values = _from_names(array.cast(pa.string()), feature, place)
    elif number and feature.classes and not _are_indices(feature.classes):
        numbers = _from_numbers(array, Feature("int64"), place, fill)
        values = _from_names(pa.array(numbers).cast(pa.string()), feature, place)
    elif number or pa.types.is_boolean(kind):
        values = _from_numbers(array, feature, place, fill)
    else:
        raise _other_type(array, feature, place)
    return values.reshape(len(array), *feature.shape)


def fit(values: np.ndarray, feature: Feature, place: Place, fill: float | None = None) -> np.ndarray:
    """Numbers as the dtype of a feature, each with its value unchanged up to the precision of a float.

    Args:
        values: Bool, whole numbers or floats of any shape, one or `place.per` values a row.
        feature: Gives the dtype.
        place: Gathers what doesn't fit.
        fill: For NaN; None refuses it.
    """
    dtype = np.dtype(feature.dtype)
    flat = values.reshape(-1)
    if flat.dtype.kind == "f":
        flat = _finite(flat, place, fill, "a finite number")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            made = flat.astype(dtype, copy=False)
        if flat.dtype.kind == "f" and dtype.itemsize < flat.dtype.itemsize:
            place.fault(
                f"too large for {dtype}", np.isinf(made) & np.isfinite(flat), flat, f"a number that fits {dtype}"
            )
        return made.reshape(values.shape)
    if flat.dtype.kind == "f":
        whole = flat == np.rint(flat)
        place.fault("not a whole number", ~whole, flat, f"a whole number ({dtype})")
        flat = np.where(whole, flat, 0)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    # A float64 can't tell 2**63 from 2**63 - 1; float bounds are exclusive above.
    beyond = (flat < low) | ((flat >= float(high) + 1) if flat.dtype.kind == "f" else (flat > high))
    if beyond.any():
        place.fault(f"outside of {dtype}", beyond, flat, f"{low} ... {high} ({dtype})")
        flat = np.where(beyond, 0, flat)
    return flat.astype(dtype, copy=False).reshape(values.shape)


def _finite(flat: np.ndarray, place: Place, fill: float | None, expected: str) -> np.ndarray:
    if np.isfinite(flat).all():
        return flat
    missing = np.isnan(flat)
    place.fault("inf", flat == np.inf, flat, expected)
    place.fault("-inf", flat == -np.inf, flat, expected)
    if fill is None:
        place.fault("nan", missing, flat, expected)
    return np.where(missing & (fill is not None), fill or 0.0, np.nan_to_num(flat, posinf=0, neginf=0))


def _from_numbers(
    array: pa.Array, feature: Feature, place: Place, fill: float | None, text: pa.Array | None = None
) -> np.ndarray:
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        if fill is None:
            place.fault("null", null, array if text is None else text, "a value")
        values = array.fill_null(False if pa.types.is_boolean(array.type) else 0).to_numpy(zero_copy_only=False)
        made = fit(values, feature, place, fill)
        if fill is not None:
            made = np.where(null, np.asarray(fill, made.dtype), made)
        return made
    return fit(array.to_numpy(zero_copy_only=False), feature, place, fill)


def _from_decimals(array: pa.Array, feature: Feature) -> pa.Array:
    """Whole numbers to the last digit, where whole numbers are wanted; else floats, also to say what doesn't fit."""
    if np.dtype(feature.dtype).kind in "iu":
        try:
            return array.cast(pa.uint64() if feature.dtype == "uint64" else pa.int64())
        except pa.ArrowInvalid:
            pass
    return array.cast(pa.float64())


def _from_text(array: pa.Array, feature: Feature, place: Place, fill: float | None) -> np.ndarray:
    dtype = np.dtype(feature.dtype)
    wide = pa.float64() if dtype.kind == "f" else pa.uint64() if dtype == np.uint64 else pa.int64()
    if dtype.kind == "b":
        return _from_text_one_by_one(array, feature, place, fill, wide)
    try:
        return _from_numbers(array.cast(wide), feature, place, fill)
    except pa.ArrowInvalid:
        known = known_texts(array)
    try:
        return _from_numbers(known.cast(wide), feature, place, fill, array)
    except pa.ArrowInvalid:
        return _from_text_one_by_one(array, feature, place, fill, wide)


def as_seen(name: str) -> str:
    """What a person sees of a name: in Unicode form NFC, without spaces around it and without invisible marks."""
    shown = "".join(mark for mark in name if unicodedata.category(mark) != "Cf")
    return unicodedata.normalize("NFC", shown).strip()


def known_texts(array: pa.Array) -> pa.Array:
    """Texts without the spaces around them, and null for those that say that a value is missing."""
    trimmed = pc.utf8_trim_whitespace(array)  # type: ignore[attr-defined]
    missing = pc.is_in(trimmed, value_set=pa.array(sorted(MISSING), array.type))  # type: ignore[attr-defined]
    return pc.if_else(missing, pa.scalar(None, array.type), trimmed)  # type: ignore[attr-defined]


def _from_text_one_by_one(
    array: pa.Array, feature: Feature, place: Place, fill: float | None, wide: pa.DataType
) -> np.ndarray:
    """Finds out which texts are wrong; what the vectorised cast accepts has the same value here."""
    dtype = np.dtype(feature.dtype)
    texts = [None if text is None else text.strip() for text in array.to_pylist()]
    values = [None if text is None or text in MISSING else _number(text, dtype.kind, wide) for text in texts]
    wrong = np.array([value is _WRONG for value in values])
    huge = wrong & np.array([WHOLE.fullmatch(str(text)) is not None for text in texts])
    noun = {"f": "a number", "b": "true or false"}.get(dtype.kind, "a whole number")
    place.fault(f"not {noun}", wrong & ~huge, texts, f"{noun} ({dtype})")
    place.fault(f"outside of {wide}", huge, texts, f"{noun} ({dtype})")
    parsed = pa.array([0 if value is _WRONG else value for value in values], wide)
    return _from_numbers(parsed, feature, place, fill, array)


_WRONG = object()


def _number(text: str, kind: str, wide: pa.DataType) -> object:
    if kind == "b":
        return TRUTH.get(text.lower(), _WRONG)
    try:
        if kind == "f":
            return pa.scalar(text).cast(wide).as_py()
        return pa.scalar(int(text) if WHOLE.fullmatch(text) else text).cast(wide).as_py()
    except (pa.ArrowInvalid, OverflowError):
        return _WRONG


def _are_indices(classes: Sequence[str]) -> bool:
    """Whether whole numbers may stand for classes: no name is a number other than its own index."""
    return all(not WHOLE.fullmatch(name) or name == str(index) for index, name in enumerate(classes))


def _from_names(array: pa.Array, feature: Feature, place: Place) -> np.ndarray:
    found = pc.index_in(array, value_set=pa.array(feature.classes, array.type))  # type: ignore[attr-defined]
    index = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    for i in np.flatnonzero(index < 0):
        text = array[int(i)].as_py()
        if text is not None and _are_indices(feature.classes) and WHOLE.fullmatch(text) and len(text) < 10:
            index[i] = int(text)  # a range that is wrong is shown as a whole by the validation
        elif text is None:
            place.faults.add(place.column, "null", [place.row + int(i)], ["null"], "a class name")
            index[i] = 0
    shown = ", ".join(map(repr, feature.classes[:20])) + (" ..." if len(feature.classes) > 20 else "")
    place.fault("not a class", index < 0, array, f"one of {shown}")
    return fit(np.maximum(index, 0), feature, place)


def _from_bytes(array: pa.Array, width: int, place: Place) -> np.ndarray:
    null = array.is_null().to_numpy(zero_copy_only=False)
    place.fault("null", null, array, "a text")
    packed = array.fill_null("").cast(pa.large_binary())
    offsets = np.frombuffer(packed.buffers()[1], np.int64)[packed.offset : packed.offset + len(packed) + 1]
    lengths = np.diff(offsets)
    place.fault("too long", lengths > width, lengths, f"at most {width} bytes of UTF-8")
    values = np.zeros((len(array), width), np.uint8)
    if (lengths <= width).all() and lengths.sum():
        data = np.frombuffer(packed.buffers()[2], np.uint8)
        values[np.arange(width) < lengths[:, None]] = data[offsets[0] : offsets[-1]]
    return values


def _varying(array: pa.Array, feature: Feature, place: Place, fill: float | None) -> Any:  # noqa: ANN401 - a Ragged
    kind = array.type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    raw = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    fits = texts or (raw and feature.of == "bytes") or pa.types.is_null(kind) if feature.of else lists
    if not fits:
        raise _other_type(array, feature, place)
    place.fault("null", array.is_null().to_numpy(zero_copy_only=False), array, "a value")
    if not feature.of:
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        inner = Place(place.faults, place.column, place.row, begins=offsets)
        return Ragged(from_arrow(array.flatten(), Feature(feature.dtype), inner, fill), offsets)
    packed = array.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(packed.buffers()[1], np.int64)[packed.offset : packed.offset + len(packed) + 1]
    data = packed.buffers()[2]
    values = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return Ragged(values, offsets - offsets[0], feature.of)


def _from_lists(array: pa.Array, feature: Feature, place: Place, fill: float | None) -> np.ndarray:
    if not feature.shape:
        raise _other_type(array, feature, place)
    child = array.type.value_type
    nested = pa.types.is_list(child) or pa.types.is_large_list(child) or pa.types.is_fixed_size_list(child)
    length, rest = (feature.shape[0], feature.shape[1:]) if nested else (math.prod(feature.shape), ())
    lengths = pc.list_value_length(array).fill_null(-1).to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
    place.fault("null", lengths == -1, array, f"a list of {length}")
    wrong = (lengths != -1) & (lengths != length)
    place.fault("lists of another length", wrong, [f"length {n}" for n in lengths], f"a list of {length}")
    if (lengths != length).any():
        return np.zeros((len(array), *feature.shape), feature.dtype)
    # `flatten` minds the offset of a slice, `values` doesn't; it would drop null lists, which are refused above.
    inner = Place(place.faults, place.column, place.row, place.per * length)
    values = from_arrow(array.flatten(), Feature(feature.dtype, rest, classes=feature.classes), inner, fill)
    return values.reshape(len(array), *feature.shape)


def _other_type(array: pa.Array, feature: Feature, place: Place) -> SchemaError:
    return SchemaError(
        f"column {place.column!r} can't be the declared feature", file=place.faults.file, field=place.column,
        got=array.type, expected=f"{feature.dtype} {list(feature.shape)}",
    )  # fmt: skip
