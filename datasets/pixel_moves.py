"""Pixels of whole batches moved quickly: windows cut out of images, images mirrored left to right.

NumPy copies long stretches of memory at the speed of the cache, but takes as long for a pixel of three bytes as for
twenty bytes in a row. So everything here copies whole rows or images, or pixels as numbers of 4 bytes.
"""

from __future__ import annotations

import numpy as np

_CACHED = 100_000  # bytes of examples at a time: the processor's cache holds them, and the allocator has them ready
_LARGE = 1 << 14  # bytes of an image from which on a few calls for each cost less than a border around all of them


def windows(images: np.ndarray, place: np.ndarray, p: int, *, mirror: bool, out: np.ndarray) -> np.ndarray:
    """Cuts windows of the images' own size out of the images with a border of p pixels.

    Args:
        images: [B, H, W, C].
        place: Of the top left corner in the image with its border, 0 ... 2 p: int64 [B, 2], down and right.
        p: Pixels of the border on each side.
        mirror: Whether the border shows the image mirrored at its edge pixels; otherwise it is 0.
        out: Takes them, contiguous [B, H, W, C]; may be `images`, which then stay in the processor's cache.
    """
    if mirror and images[:1].nbytes >= _LARGE:
        return _from_rows(images, place - p, out)
    return _from_padded(images, place, p, mirror=mirror, out=out)


def _from_rows(images: np.ndarray, moves: np.ndarray, out: np.ndarray) -> np.ndarray:
    """One image after the other: its rows in their new order, then moved sideways, then the side that is missing."""
    count, height, width, channels = images.shape
    rows = _mirrored_places(np.arange(height) + moves[:, :1], height)
    left = moves[:, 1].tolist()
    sides = {k: _side(k, width, channels) for k in set(left)}
    source, cut = np.ascontiguousarray(images).reshape(count, height, -1), out.reshape(count, height, -1)
    moved = np.empty(cut.shape[1:], images.dtype)
    for i, k in enumerate(left):
        source[i].take(rows[i], axis=0, out=moved, mode="clip")  # all are inside
        values, at = cut[i], abs(k) * channels
        if k < 0:
            values[:, at:] = moved[:, :-at]
            values[:, :at] = moved.take(sides[k], axis=1, mode="clip")
        elif k > 0:
            values[:, :-at] = moved[:, at:]
            values[:, -at:] = moved.take(sides[k], axis=1, mode="clip")
        else:
            values[:] = moved
    return out


def _mirrored_places(places: np.ndarray, count: int) -> np.ndarray:
    """Places outside of 0 ... count - 1, by less than count, mirrored at the first and the last."""
    places = np.abs(places)
    return np.where(places < count, places, 2 * (count - 1) - places)


def _side(k: int, width: int, channels: int) -> np.ndarray:
    """Which values of a row come into view at the side if it is moved left by k pixels, right if k < 0."""
    pixels = np.arange(-k, 0, -1) if k < 0 else np.arange(width - 2, width - 2 - k, -1)
    return (pixels[:, None] * channels + np.arange(channels)).ravel()


def _from_padded(images: np.ndarray, place: np.ndarray, p: int, *, mirror: bool, out: np.ndarray) -> np.ndarray:
    count, height, width, channels = images.shape
    # The rows of a padded image lie one after the other, so a window with its neighbours at the right is one stretch
    # of memory: one copy an example, however many rows it has. The row more below is for the last one's neighbours.
    row = (width + 2 * p) * channels
    start = place[:, 0] * row + place[:, 1] * channels
    at_once = max(16, _CACHED // ((height + 2 * p + 1) * row * images.itemsize))
    padded = np.zeros((min(at_once, count), height + 2 * p + 1, width + 2 * p, channels), images.dtype)
    stretches = np.lib.stride_tricks.sliding_window_view(padded.reshape(len(padded), -1), height * row, axis=1)
    for first in range(0, count, at_once):
        part = images[first : first + at_once]
        padded[: len(part), p : p + height, p : p + width] = part
        if mirror and p:
            _mirror_border(padded, height, width, p)
        picked = stretches[np.arange(len(part)), start[first : first + at_once]]
        out[first : first + at_once] = picked.reshape(len(part), height, width + 2 * p, channels)[:, :, :width]
    return out


def _mirror_border(padded: np.ndarray, height: int, width: int, p: int) -> None:
    padded[:, :p] = padded[:, 2 * p : p : -1]
    padded[:, p + height : p + height + p] = padded[:, p + height - 2 : height - 2 : -1]
    if padded.shape[3] == 1:  # a column of all rows and examples is one walk through memory
        for x in range(p):
            padded[:, :, x] = padded[:, :, 2 * p - x]
            padded[:, :, p + width + x] = padded[:, :, p + width - 2 - x]
        return
    # Value by value, all of a row's at once: pixels of three bytes would be copied far more slowly.
    pixels = np.r_[2 * p : p : -1, p + width - 2 : width - 2 : -1]
    at = (pixels[:, None] * padded.shape[3] + np.arange(padded.shape[3])).ravel()
    rows = padded.reshape(-1, padded.shape[2] * padded.shape[3])
    mirrored, side = rows.take(at, axis=1, mode="clip"), len(at) // 2
    rows[:, :side], rows[:, -side:] = mirrored[:, :side], mirrored[:, side:]


def mirror(images: np.ndarray, chosen: np.ndarray) -> None:
    """Mirrors, of images [B, H, W, C], those with the numbers `chosen`, int64 [N], left to right."""
    at_once = max(1, 2 * _CACHED // max(1, images[:1].nbytes))
    turn = _three_bytes_mirrored if images.shape[3] * images.itemsize == 3 else _channels_mirrored
    for first in range(0, len(chosen), at_once):
        part = chosen[first : first + at_once]
        images[part] = turn(images, part)


def _channels_mirrored(images: np.ndarray, some: np.ndarray) -> np.ndarray:
    straight = images[some]
    turned = np.empty_like(straight)
    for channel in range(images.shape[3]):  # whole pixels would be copied in steps of a few bytes
        turned[..., channel] = straight[:, :, ::-1, channel]
    return turned


def _three_bytes_mirrored(images: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The same for pixels of three bytes, in half of the time: each is read and written with the byte behind it.

    So there is a byte more at the end of both. What is written too much is the first byte of the next pixel, which is
    written next: NumPy walks through what it writes to in the order of memory.
    """
    count, (height, width, _) = len(some), images.shape[1:]
    size = count * height * width * 3
    straight, turned = np.empty(size + 1, images.dtype), np.empty(size + 1, images.dtype)
    images.take(some, axis=0, out=straight[:-1].reshape(count, *images.shape[1:]), mode="clip")
    straight[-1] = 0
    pixels = np.empty((count * height, width), np.uint32)
    pixels[:] = np.ndarray(pixels.shape, np.uint32, straight, strides=(width * 3, 3))[:, ::-1]
    np.ndarray(pixels.size, np.uint32, turned, strides=(3,))[:] = pixels.reshape(-1)
    return turned[:-1].reshape(count, *images.shape[1:])
