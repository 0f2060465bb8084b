"""How far a run is, from its rows and from the bytes of its inputs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from nllb_cli.io.formats import Source


class Reading(Protocol):
    """An input that is being read."""

    source: Source
    num_read: int


@dataclass(slots=True, eq=False)
class Progress:
    """How far a run is, in rows and bytes."""

    read_before: int = 0
    """Rows of the inputs that are read to their end."""
    written: int = 0
    resumed: int = 0
    """Rows that earlier runs had written."""
    before: Counter[str] = field(default_factory=Counter)
    """Those rows by mark, as far as the runs left word of it."""
    bytes_read: int = 0
    """Of the inputs that are read to their end."""
    current: Reading | None = None
    """The input that is being read."""
    is_read: bool = False
    """True once all inputs are read, so that the total is known."""
    _num_bytes: int | None = 0
    _num_rows: int | None = 0

    def expect(self, num_bytes: int | None, num_rows: int | None) -> None:
        """Count an input in; None is what is not known of it."""
        if self._num_bytes is not None:
            self._num_bytes = None if num_bytes is None else self._num_bytes + num_bytes
        if self._num_rows is not None:
            self._num_rows = None if num_rows is None else self._num_rows + num_rows

    @property
    def done(self) -> int:
        """Rows that are written, by this run and earlier ones."""
        return self.written + self.resumed

    @property
    def total(self) -> int | None:
        """All rows: counted, else estimated from the bytes read so far, else None."""
        if self._num_rows is not None:
            return self._num_rows
        rows, num_bytes = self.read_before + self.resumed, self.bytes_read
        if self.is_read:
            return rows
        current = self.current
        if current is not None:
            rows += current.num_read
            num_bytes += current.source.bytes_read
        if not self._num_bytes or not num_bytes:
            return None
        return max(rows, rows * self._num_bytes // num_bytes)

    @property
    def is_estimate(self) -> bool:
        """True while the total follows from the bytes read so far."""
        return self._num_rows is None and not self.is_read
