from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from datasets.augment import Augmentation, Crop, Erase, Flip, Noise, Rotate, Shift, overwriting
from datasets.errors import ParameterError, SchemaError
from datasets.schema import Recipe
from tasks.example_random import uniform

ALL: list[Any] = [Shift(2), Crop(3), Flip(), Erase(4), Noise(0.1), Rotate(15)]


def batch(count: int, dtype: type = np.uint8, shape: tuple[int, ...] = (12, 10, 3)) -> np.ndarray:
    images = np.random.default_rng(0).integers(1, 256, (count, *shape), dtype=np.uint8)
    return images if dtype is np.uint8 else images.astype(np.float32) / 255


def draws(augmentation: Augmentation, count: int, epoch: int = 0) -> np.ndarray:
    return uniform(0, epoch, np.arange(count), augmentation.draws)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_an_example_is_changed_by_its_own_numbers_only(augmentation: Augmentation, dtype: type) -> None:
    images, u = batch(75, dtype), draws(augmentation, 75)
    before = images.copy()
    changed = augmentation(images, u)
    assert changed.shape == images.shape
    assert changed.dtype == images.dtype
    assert not np.shares_memory(changed, images)
    np.testing.assert_array_equal(images, before)
    for part in (slice(0, 1), slice(7, 12), slice(74, 75), slice(None, None, -1)):
        np.testing.assert_array_equal(augmentation(images[part], u[part]), changed[part])
    np.testing.assert_array_equal(augmentation(images, u), changed)
    assert not np.array_equal(augmentation(images, draws(augmentation, 75, epoch=1)), changed)


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_in_place_is_the_same(augmentation: Augmentation) -> None:
    for images in (batch(75), batch(20, np.float32), batch(5, shape=(90, 80, 3))):
        u = draws(augmentation, len(images))
        want, given = augmentation(images, u), images.copy()
        changed = overwriting(augmentation)(given, u)
        np.testing.assert_array_equal(changed, want)
        assert (changed is given) == isinstance(augmentation, (Shift, Crop, Flip, Erase))


def test_a_subclass_that_does_something_else_is_not_passed_over() -> None:
    @dataclasses.dataclass(frozen=True)
    class Darker(Flip):
        def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
            return images // 2

    assert np.array_equal(overwriting(Darker())(batch(3), np.zeros((3, 1))), batch(3) // 2)


@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_numbers_at_the_ends_of_their_range(augmentation: Augmentation) -> None:
    for value in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        u = np.full((3, augmentation.draws), value, np.float32)
        assert augmentation(batch(3), u).shape == (3, 12, 10, 3)


def test_read_only_and_sliced_batches_work() -> None:
    whole = batch(20)
    whole.flags.writeable = False
    for augmentation in ALL:
        u = draws(augmentation, 10)
        np.testing.assert_array_equal(augmentation(whole[::2], u), augmentation(whole[::2].copy(), u))


def shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    out = np.zeros_like(image)
    height, width = image.shape[:2]
    for y in range(height):
        for x in range(width):
            if 0 <= y - down < height and 0 <= x - right < width:
                out[y, x] = image[y - down, x - right]
    return out


def test_shift_moves_by_every_distance_equally_often() -> None:
    images = np.repeat(batch(1), 2500, axis=0)
    changed = Shift(2)(images, draws(Shift(2), 2500))
    table = {shifted(images[0], y, x).tobytes(): (y, x) for y in range(-2, 3) for x in range(-2, 3)}
    counts = np.zeros((5, 5))
    for image in changed:
        y, x = table[image.tobytes()]
        counts[y + 2, x + 2] += 1
    assert ((counts - 100) ** 2 / 100).sum() < 51.2  # chi squared, 24 degrees of freedom, p = 0.001


def test_shift_may_empty_an_image_and_none_changes_nothing() -> None:
    images = batch(4, shape=(3, 3, 1))
    np.testing.assert_array_equal(Shift(0)(images, draws(Shift(0), 4)), images)
    np.testing.assert_array_equal(Shift(5)(images, np.zeros((4, 2), np.float32)), np.zeros_like(images))


def test_crop_is_a_window_of_the_mirrored_image() -> None:
    images = batch(40)
    u = draws(Crop(3), 40)
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect")
    for index, image in enumerate(Crop(3)(images, u)):
        y, x = int(u[index, 0] * 7), int(u[index, 1] * 7)
        np.testing.assert_array_equal(image, padded[index, y : y + 12, x : x + 10])
    np.testing.assert_array_equal(Crop(0)(images, u), images)


def test_flip_mirrors_that_share_left_to_right() -> None:
    images = batch(2000, shape=(2, 3, 1))
    changed = Flip(0.25)(images, draws(Flip(0.25), 2000))
    same = (changed == images).all((1, 2, 3))
    mirrored = (changed == images[:, :, ::-1]).all((1, 2, 3))
    assert (same | mirrored).all()
    assert 400 < mirrored.sum() < 600
    np.testing.assert_array_equal(Flip(0)(images, draws(Flip(), 2000)), images)
    np.testing.assert_array_equal(Flip(1)(images, draws(Flip(), 2000)), images[:, :, ::-1])


def test_erase_sets_a_square_anywhere_inside_to_zero() -> None:
    images = batch(2000)
    changed = Erase(4, probability=0.5)(images, draws(Erase(4), 2000))
    erased = (changed == 0).all(-1)
    assert ((changed == images).all(-1) | erased).all()
    assert set(erased.sum((1, 2)).tolist()) == {0, 16}
    assert 900 < erased.any((1, 2)).sum() < 1100
    corners = set()
    for mask in erased[erased.any((1, 2))]:
        ys, xs = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        assert (ys[-1] - ys[0], xs[-1] - xs[0]) == (3, 3)
        corners.add((int(ys[0]), int(xs[0])))
    assert corners == {(y, x) for y in range(9) for x in range(7)}
    whole = Erase(10, probability=1)(images[:2], np.zeros((2, 3), np.float32))
    assert (whole[:, :10] == 0).all()


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1.0), (np.uint8, 255.0)])
def test_noise_is_normal_and_independent(dtype: type, scale: float) -> None:
    images = np.full((200, 16, 16, 3), 128 if dtype is np.uint8 else 0.5, dtype)
    changed = Noise(0.05)(images, draws(Noise(0.05), 200))
    noise = ((changed.astype(np.float64) - images) / scale / 0.05).reshape(200, -1)
    assert abs(noise.mean()) < 0.01
    assert abs(noise.std() - 1) < 0.01
    if dtype is np.float32:
        assert abs(np.mean(np.abs(noise) < 1) - 0.6827) < 0.01
    assert abs(np.mean(noise**4) - 3) < 0.1
    assert np.abs(np.corrcoef(noise[:, :64].T) - np.eye(64)).max() < 0.35
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]) < 0.01


def test_noise_keeps_uint8_within_range_and_0_changes_nothing() -> None:
    images = np.zeros((50, 8, 8, 1), np.uint8)
    images[25:] = 255
    changed = Noise(0.2)(images, draws(Noise(0.2), 50))
    assert changed[:25].max() < 255 // 2 + 130
    assert (changed[:25] == 0).mean() > 0.45
    assert (changed[25:] == 255).mean() > 0.45
    np.testing.assert_array_equal(Noise(0)(images, draws(Noise(0), 50)), images)


def test_rotate_by_a_right_angle_and_by_none() -> None:
    images = batch(6, shape=(9, 9, 2))
    # u = 0 turns by all degrees anticlockwise, 0.5 by none.
    np.testing.assert_array_equal(Rotate(90)(images, np.zeros((6, 1), np.float32)), np.rot90(images, 1, axes=(1, 2)))
    np.testing.assert_array_equal(Rotate(180)(images, np.zeros((6, 1), np.float32)), images[:, ::-1, ::-1])
    np.testing.assert_array_equal(Rotate(30)(images, np.full((6, 1), 0.5, np.float32)), images)
    np.testing.assert_array_equal(Rotate(0)(images, draws(Rotate(0), 6)), images)


def test_rotate_is_bilinear_around_the_centre() -> None:
    # A linear picture stays exactly linear under bilinear interpolation, wherever nothing comes from outside.
    y, x = np.mgrid[0:21, 0:21].astype(np.float32)
    image = (2 * x + 5 * y + 7)[None, :, :, None]
    u = np.array([[0.75]], np.float32)
    turned = Rotate(40)(image, u)[0, :, :, 0]
    angle = math.radians(20)
    from_x = math.cos(angle) * (x - 10) + math.sin(angle) * (y - 10) + 10
    from_y = math.cos(angle) * (y - 10) - math.sin(angle) * (x - 10) + 10
    inside = (from_x >= 0) & (from_x <= 20) & (from_y >= 0) & (from_y <= 20)
    assert inside.sum() > 300
    np.testing.assert_allclose(turned[inside], (2 * from_x + 5 * from_y + 7)[inside], rtol=1e-4)
    far = (from_x < -1) | (from_x > 21) | (from_y < -1) | (from_y > 21)
    assert far.any()
    np.testing.assert_allclose(turned[far], 0, atol=0.2)


def test_uint8_is_rotated_as_float32_is_and_then_rounded() -> None:
    images, u = batch(20), draws(Rotate(30), 20)
    exact = Rotate(30)(images.astype(np.float32), u)
    np.testing.assert_array_equal(Rotate(30)(images, u), np.rint(exact).astype(np.uint8))


def test_angles_spread_over_both_directions() -> None:
    image = np.zeros((1, 21, 21, 1), np.float32)
    image[0, 10, 15:] = 1
    turned = Rotate(30)(np.repeat(image, 400, axis=0), draws(Rotate(30), 400))
    centre = (turned[..., 0] * np.arange(-10, 11)[:, None]).sum((1, 2)) / turned[..., 0].sum((1, 2))
    assert -3.9 < centre.min() < -3.6
    assert 3.6 < centre.max() < 3.9
    assert abs(np.median(centre)) < 0.5


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Shift, {"pixels": -1}), (Shift, {"pixels": 1.5}), (Crop, {"pad": -1}), (Crop, {"pad": True}),
        (Rotate, {"degrees": -1}), (Rotate, {"degrees": 181}), (Rotate, {"degrees": math.nan}),
        (Flip, {"probability": 1.5}), (Flip, {"probability": -0.1}), (Flip, {"probability": "1"}),
        (Erase, {"size": 0}), (Erase, {"size": 3, "probability": 2}), (Noise, {"std": -1}), (Noise, {"std": math.inf}),
    ],
)  # fmt: skip
def test_values_that_cannot_work(kind: Any, values: dict[str, Any]) -> None:
    name = list(values)[-1]
    with pytest.raises(ParameterError, match=name):
        kind(**values)


@pytest.mark.parametrize("augmentation", [Crop(10), Erase(11)])
def test_images_that_are_too_small(augmentation: Augmentation) -> None:
    with pytest.raises(ParameterError, match="larger images"):
        augmentation(batch(2), draws(augmentation, 2))


@pytest.mark.parametrize("images", [batch(2)[..., 0], batch(2).astype(np.int32), np.zeros((2, 5))])
@pytest.mark.parametrize("augmentation", ALL, ids=str)
def test_what_is_no_image(augmentation: Augmentation, images: np.ndarray) -> None:
    with pytest.raises(SchemaError, match=r"\[B, H, W, C\]"):
        augmentation(images, draws(augmentation, 2))


def test_recipes_hold_them_as_frozen_values() -> None:
    assert Recipe(augment=(Shift(2), Rotate(10))) == Recipe(augment=(Shift(2), Rotate(10)))
    assert Recipe(augment=(Shift(2),)) != Recipe(augment=(Shift(3),))
    assert all(isinstance(augmentation, Augmentation) for augmentation in ALL)
    for augmentation in ALL:
        assert hash(augmentation) == hash(dataclasses.replace(augmentation))
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(augmentation, dataclasses.fields(augmentation)[0].name, 1)
