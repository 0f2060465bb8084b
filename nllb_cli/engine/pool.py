"""Which rows of a fixed pool are free, as intervals."""


class RowPool:
    """Hands out contiguous rows, first fit; joins what comes back with its neighbours."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._free = [(0, num_rows)]  # (first, count), in order, never adjacent

    def take(self, count: int) -> int | None:
        """Return the first of `count` contiguous rows, or None where no gap is large enough."""
        for index, (first, size) in enumerate(self._free):
            if size >= count:
                self._free[index : index + 1] = [(first + count, size - count)] * (size > count)
                return first
        return None

    def give_back(self, first: int, count: int) -> None:
        """Free rows that were taken together."""
        joined = [*self._free, (first, count)]
        joined.sort()
        self._free = [joined[0]]
        for start, size in joined[1:]:
            last_start, last_size = self._free[-1]
            if last_start + last_size == start:
                self._free[-1] = (last_start, last_size + size)
            else:
                self._free.append((start, size))

    @property
    def num_free(self) -> int:
        """Rows that are free, in gaps of any size."""
        return sum(size for _, size in self._free)
