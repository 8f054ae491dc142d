"""3x3 convolution and 2x2 max pooling as one operation, in the form that the backend runs best.

On a CPU the four corners of every 2x2 square are four convolutions with stride 2, each one product of matrices (im2col)
with its results in one piece. So the image in full size, its pooling, and the spreading of gradients over it never
exist; XLA needs a sixth less time for a step of the model `cnn` than for a convolution that is pooled after it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

FEW_CHANNELS = 4
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Row and column of each place in a 2x2 square."""

Kept = tuple[jax.Array, jax.Array, list[jax.Array], jax.Array]
"""What the gradient needs: image, kernel, the values at each corner and the greatest of them, [B * h * w, K] each."""


def cpu_formulation() -> bool:
    """Whether the form is chosen that is fast on a CPU; the one place that decides it."""
    return jax.default_backend() == "cpu"


def conv_pool(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """3x3 convolution, stride 1, zero padding, then the greatest of each 2x2 square.

    Args:
        x: [B, H, W, C].
        kernel: [3, 3, C, K].

    Returns:
        [B, H // 2, W // 2, K]; an odd last row or column is dropped.
    """
    return conv_pool_by_corners(x, kernel) if cpu_formulation() else conv_pool_by_lax(x, kernel)


def conv_pool_by_lax(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """XLA's own convolution and a reduce-window, which GPU and TPU libraries implement."""
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@jax.custom_vjp
def conv_pool_by_corners(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The same by four products of matrices; equal maxima of a square share its gradient, as they do in `jnp.max`."""
    return _forward(x, kernel)[0]


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Kept]:
    B, H, W, _ = x.shape
    grid, weights = _grid(x), _matrix(kernel)
    corners = [_neighbourhoods(grid, *corner) @ weights for corner in CORNERS]
    pooled = jnp.maximum(jnp.maximum(corners[0], corners[1]), jnp.maximum(corners[2], corners[3]))
    return pooled.reshape(B, H // 2, W // 2, -1), (x, kernel, corners, pooled)


def _backward(kept: Kept, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel, corners, pooled = kept
    gradient = gradient.reshape(pooled.shape)
    shared = gradient / sum((corner == pooled).astype(gradient.dtype) for corner in corners)
    gradients = [jnp.where(corner == pooled, shared, 0) for corner in corners]
    grid = _grid(x)
    of_kernel = sum(
        _neighbourhoods(grid, *corner).T @ gradient for corner, gradient in zip(CORNERS, gradients, strict=True)
    )
    return _gradient_of_image(x.shape, _matrix(kernel), gradients), jnp.reshape(of_kernel, kernel.shape)


conv_pool_by_corners.defvjp(_forward, _backward)


def _matrix(kernel: jax.Array) -> jax.Array:
    return kernel.reshape(-1, kernel.shape[-1])


def _grid(x: jax.Array) -> list[list[jax.Array]]:
    """Every second pixel of the padded image, from each of 4 x 4 starts on: [B, H // 2, W // 2, C] each."""
    _, H, W, _ = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = H // 2 * 2, W // 2 * 2
    return [[padded[:, top : top + rows : 2, left : left + columns : 2] for left in range(4)] for top in range(4)]


def _neighbourhoods(grid: list[list[jax.Array]], row: int, column: int) -> jax.Array:
    """The nine pixels around one corner of every square: [B * h * w, 9 * C]."""
    pixels = [grid[row + down][column + right] for down in range(3) for right in range(3)]
    C = pixels[0].shape[-1]
    if C > FEW_CHANNELS:
        return jnp.concatenate(pixels, axis=-1).reshape(-1, 9 * C)
    # Side by side, a few channels would be copied number by number; one below the other, whole images are.
    return jnp.stack([pixel[..., channel].reshape(-1) for pixel in pixels for channel in range(C)]).T


def _gradient_of_image(shape: tuple[int, ...], weights: jax.Array, gradients: list[jax.Array]) -> jax.Array:
    """Adds what each pixel gave to the corners around it: [B, H, W, C]."""
    B, H, W, C = shape
    h, w = H // 2, W // 2
    grid: list[list[jax.Array | float]] = [[0.0] * 4 for _ in range(4)]
    for (row, column), gradient in zip(CORNERS, gradients, strict=True):
        given = (gradient @ weights.T).reshape(B, h, w, 9, C)
        for down in range(3):
            for right in range(3):
                grid[row + down][column + right] += given[:, :, :, 3 * down + right]

    def every_second(top: int, left: int) -> jax.Array:
        """Pixels of the padded image with even or odd rows and columns; those of starts 2 and 3 lie one further."""
        parts = [
            jnp.pad(grid[top + 2 * down][left + 2 * right], ((0, 0), (down, 1 - down), (right, 1 - right), (0, 0)))
            for down, right in CORNERS
        ]
        return parts[0] + parts[1] + parts[2] + parts[3]

    rows = [
        jnp.stack([every_second(top, 0), every_second(top, 1)], axis=3).reshape(B, h + 1, 2 * w + 2, C)
        for top in range(2)
    ]
    padded = jnp.stack(rows, axis=2).reshape(B, 2 * h + 2, 2 * w + 2, C)
    return padded[:, 1 : H + 1, 1 : W + 1]
