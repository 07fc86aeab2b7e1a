"""The journal: events on disk by columns, with their types, for later reading.

`Journal` reads and `JournalWriter` writes. Any number of readers and one writer may use a folder at
the same time. docs/journal.md specifies the files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from infobus.errors import StoreCorrupt, UsageError
from infobus.filters import compile
from infobus.objects import Type, find_type
from infobus.stores.journal import schemas
from infobus.stores.journal.columns import attribute_fields
from infobus.stores.journal.conditions import Conditions
from infobus.stores.journal.manifest import Manifest, Segment, load, local_folder
from infobus.stores.journal.schemas import attribute_columns, columns_for
from infobus.stores.journal.selection import JournalEvent, Selection, learn
from infobus.stores.journal.writer import JournalWriter
from infobus.subjects import check_pattern

__all__ = ["Journal", "JournalEvent", "JournalWriter", "Segment", "Selection"]


class Journal:
    """A journal as it was when you opened it; events written later are not visible.

    Attributes:
        folder: The journal's folder.
        manifest: The list of its files.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: str | Path) -> Journal:
        """Read the present state of the journal.

        Raises:
            StoreError: There is none, or it is of a newer format.
            StoreCorrupt: Its manifest is damaged.
        """
        folder = local_folder(folder)
        return cls(folder, load(folder))

    @property
    def id(self) -> str:
        """The journal's own id, which distinguishes it from other journals."""
        return self.manifest.journal

    @property
    def next_offset(self) -> int:
        """The offset of the next event; all events in the journal have smaller ones."""
        return self.manifest.next_offset

    @property
    def first_offset(self) -> int:
        """Retention has removed nothing from this offset on."""
        return self.manifest.first_offset

    def first_offset_of(self, type: str | None) -> int:
        """Return the offset from which on retention has removed nothing of a type's events."""
        taken = self.manifest.taken
        if type is None or not taken:
            return self.first_offset
        return max((taken.get(name, 0) for name in self._family(type)), default=0)

    def era_before(self, offset: int) -> str | None:
        """Return in which era the event before this offset was written, if that is known."""
        eras = [era.id for era in self.manifest.eras if era.first < offset]
        return eras[-1] if eras else None

    def era_end(self, id: str, offset: int) -> int | None:
        """Return the end of an era; None if this journal has none that held this offset."""
        eras = self.manifest.eras
        ends = [*(era.first for era in eras[1:]), self.next_offset]
        for era, end in zip(eras, ends, strict=False):
            if era.id == id:
                return end
        is_forgotten = not eras or offset <= eras[0].first
        return self.next_offset if is_forgotten else None

    def types(self) -> list[Type]:
        """Return the newest version of each type that the journal knows, by name."""
        return [versions[-1] for _, versions in sorted(self._versions.items())]

    def files(self, type: str | None = None) -> list[Path]:
        """Return the Parquet files, of one type (without its subtypes) or of all."""
        segments = self.manifest.segments
        return [self.folder / one.path for one in segments if type in (None, one.type)]

    def select(
        self,
        type: str | None = None,
        *,
        subtypes: bool = False,
        subject: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        start: int | None = None,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Selection:
        """Select the events that satisfy all conditions; read them from the returned selection.

        Args:
            type: Events of this type and of its subtypes, with a column for each attribute of
                the type. Without it: all events, attributes in the typed map `_attributes`.
            subtypes: Adds columns for the attributes of the subtypes.
            subject: A pattern.
            where: A filter, as in `subscribe`; it may also use `_subject`, `_time`, ...
            since: The earliest time of publication.
            until: Only events published before this time.
            start: The first offset.
            stop: The offset after the last.
            columns: Only these, in this order.

        Raises:
            UsageError: No such type or column; a bad pattern or filter.
            StoreCorrupt: You select by type, and the descriptor of one is damaged or lost.
        """
        if subject is not None:
            check_pattern(subject)
        if where is not None and compile(where).asks_for_type:
            _ = self._versions  # else events of a type whose descriptor is lost would be missed
        for moment in (since, until):
            if moment is not None and moment.utcoffset() is None:
                raise UsageError(f"{moment} has no time zone; add one, for example tzinfo=UTC")
        names = None if type is None else self._family(type)
        segments = tuple(
            one for one in self.manifest.segments if names is None or one.type in names
        )
        kinds = {} if type is None or names is None else self._kinds(type, names, subtypes)
        all_columns = columns_for(kinds)
        chosen = all_columns if columns is None else self._narrowed(all_columns, columns)
        whole = Selection(self.folder, segments, Conditions(), chosen, self._schemas, type is None)
        return whole.narrowed(
            subject=subject, where=where, since=since, until=until, start=start, stop=stop
        )

    # Types and columns.

    @cached_property
    def _schemas(self) -> Mapping[str, pa.Schema]:
        texts = self.manifest.schemas.items()
        return {key: schemas.read(text) for key, text in texts}

    @cached_property
    def _versions(self) -> dict[str, list[Type]]:
        """By name: the versions of each type whose descriptor is there, newest last."""
        found = {}
        for name, fingerprints in self.manifest.types.items():
            learn(self.folder, fingerprints, are_listed=True)
            known = [find_type(int(fingerprint, 16)) for fingerprint in fingerprints]
            found[name] = [one for one in known if one is not None]
        return found

    def _family(self, name: str) -> set[str]:
        """Return the names of a type and of its subtypes, as far as the journal knows."""
        self._check_descriptors_of(name)
        if name not in self._versions and find_type(name) is None:
            close = difflib.get_close_matches(name, self._versions, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"the journal in {self.folder} knows no type {name!r}{hint}")
        family = {
            other
            for other, versions in self._versions.items()
            if any(name in version.lineage for version in versions)
        }
        return family | {name}

    def _check_descriptors_of(self, name: str) -> None:
        """Refuse a type that a repair has given up and that this process does not know either.

        Raises:
            StoreCorrupt: The type is such a type.
        """
        listed = {one for fingerprints in self.manifest.types.values() for one in fingerprints}
        for lost in self.manifest.lost:
            version = lost.descriptor
            if version is None or lost.type != name or version in listed:
                continue
            if find_type(int(version, 16)) is None:
                path = self.folder / lost.path
                what = f"the descriptor of {name} was lost ({path})"
                raise StoreCorrupt(
                    f"{what}: its events can be read without a type, and by its name when somebody "
                    "who knows the type has recorded one more",
                    path=str(path),
                    problems=(what,),
                )

    def _kinds(self, name: str, names: set[str], subtypes: bool) -> dict[str, list[pa.DataType]]:
        """Return the Arrow types of each attribute that gets a column, newest first."""
        here = find_type(name)
        own = self._versions.get(name) or ([] if here is None else [here])
        below = [one for other in sorted(names - {name}) for one in self._versions.get(other, ())]
        sources = [*reversed(own), *reversed(below)]
        asked = sources if subtypes else own
        wanted = dict.fromkeys(a.name for one in [*reversed(own), *asked] for a in one.attributes)
        kinds: dict[str, list[pa.DataType]] = {attribute: [] for attribute in wanted}
        for one in sources:
            for fields in self._fields(one):
                for attribute, field in fields.items():
                    if attribute in kinds:
                        kinds[attribute].append(field.type)
        for one in sources:  # for attributes that are in no file yet
            for attribute, field in attribute_fields(one).items():
                if attribute in kinds and not kinds[attribute]:
                    kinds[attribute].append(field.type)
        return kinds

    def _fields(self, version: Type) -> list[dict[str, pa.Field]]:
        """Return the columns of a version of a type as its files have them, newest first."""
        fingerprint = f"{version.fingerprint:016x}"
        segments = self.manifest.segments
        keys = dict.fromkeys(one.schema for one in segments if one.fingerprint == fingerprint)
        return [attribute_columns(self._schemas[key]) for key in reversed(keys)]

    def _narrowed(
        self, columns: Mapping[str, schemas.Column], names: Sequence[str]
    ) -> dict[str, schemas.Column]:
        for name in names:
            if name not in columns:
                close = difflib.get_close_matches(name, columns, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise UsageError(f"there is no column {name!r}{hint}")
        return {name: columns[name] for name in names}
