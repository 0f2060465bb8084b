"""A float and its index as one integer, so that sorting integers sorts floats, ties by index."""

from nllb_cli.kernels.optional_triton import tl, triton

LOWEST_KEY = tl.constexpr(-(2**63))
"""Below the key of every number."""


@triton.jit
def ordered_key(value, index):
    """Return an int64 that is greater for a greater value, and for equal values for a lower index.

    An fp32 number's bits grow with it once those of negative ones are turned round. Indices are
    0 … 2^31 - 1.
    """
    value = tl.where(value == 0.0, 0.0, value)  # -0 is no less than 0
    bits = value.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def key_value(key):
    """Return the value that a key was made of."""
    bits = (key >> 32).to(tl.int32)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def key_index(key):
    """Return the index that a key was made of."""
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)
