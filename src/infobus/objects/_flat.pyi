from typing import Any

def count_values(body: bytes, count_max: int) -> int:
    """Return how many elements the lists and maps in `body` claim; see `untyped`."""

class Flat:
    """Encode and decode flat objects of one class, in C. See `flat.flat_for`.

    Every method returns None if an object or its bytes do not match the type exactly.
    """

    def __new__(
        cls,
        of: type,
        tag: Any,
        header: bytes,
        fields: tuple[tuple[str, bytes, str], ...],
        bytes_max: int,
        is_closed: bool,
    ) -> Flat: ...
    def encode(self, obj: object) -> bytes | None: ...
    def encode_new(self, obj: object, sender: str, number: int) -> bytes | None: ...
    def encode_run(self, objects: list[Any], bytes_max: int) -> list[bytes] | None: ...
    def identify_run(self, objects: list[Any], sender: str, numbers: list[int]) -> None: ...
    def decode(self, body: bytes, object_id: Any) -> Any: ...
    def decode_run(
        self, bodies: list[bytes], sender: str, numbers: list[int]
    ) -> list[Any] | None: ...
