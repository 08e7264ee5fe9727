"""Whether jobs may read a place and write there: each step tried, with what the store answers.

The steps are those of the jobs: builds and look-ups read a source; builds write to an index, appends and changes to a
source, by writes that fail where the name is taken. Nothing that exists is changed."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from urllib.parse import parse_qs

from gnomon.base.errors import GnomonError
from gnomon.jobs.files.catalog_tables import is_table, no_catalog
from gnomon.shadow.metadata import source_root
from gnomon.shadow.storage import (
    PROBE_FOLDER,
    FileInfo,
    Readable,
    probe,
    source_storage,
    split,
    storage_at,
    time_of_store,
    vendor_of,
    words_of,
)
from gnomon.shadow.tables import is_lake, lake_source

SAS = "AZURE_STORAGE_SAS_TOKEN"
# By scheme, where a store's client finds credentials: environment variables, in the order in which they count.
CREDENTIALS = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE",),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ),
    "gs": (("GOOGLE_SERVICE_ACCOUNT",), ("GOOGLE_SERVICE_ACCOUNT_KEY",), ("GOOGLE_APPLICATION_CREDENTIALS",)),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY",),
        (SAS,),
        ("AZURE_STORAGE_CLIENT_ID",),
        ("AZURE_FEDERATED_TOKEN_FILE",),
    ),
    "hf": (("HF_TOKEN",),),
    "hdfs": (("HADOOP_USER_NAME",),),
}
ENDS = "AWS_CREDENTIAL_EXPIRATION"  # set by `aws configure export-credentials`
READ_BYTES, TIME, UNTOLD = 16, "%Y-%m-%dT%H:%M:%SZ", "a time that they do not tell"
RENEWED = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_FEDERATED_TOKEN_FILE")  # a file that the client reads again


TABLE, LIST, READ, CREATE, CLOCK = (
    "read the table's metadata",
    "list files",
    "read a range of a file",
    "create-only write, read back, delete",
    "compare clocks",
)


@dataclass
class Access:
    """The steps that were tried at a place. `found` has the result of each step that went well, `refused` the error of
    each other one. `credentials` says where the store's client finds them, and when they end, where they tell."""

    place: str
    credentials: str = "none, a local path"
    found: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def can_read(self) -> bool:
        return not self.refused.keys() & {TABLE, LIST, READ}

    @property
    def can_write(self) -> bool:
        return CREATE in self.found

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the error that ends the block as that of a step."""
        try:
            yield
        except (GnomonError, OSError) as error:
            self.refused[name] = words_of(error)


def check_access(place: str) -> Access:
    """Try what jobs do at a source or an index: read the metadata of a table or list the files, read a range of a file,
    write a file on the condition that its name is free, and compare the clocks. UsageError for a table of the catalog
    and for a place that names no store."""
    access, location, files = Access(place), place, list[FileInfo]()
    if is_table(place):
        no_catalog(place)
    if is_lake(place):
        with access.step(TABLE):
            content = lake_source(place).content
            location, files = content.root, [FileInfo(path, file.size, 0) for path, file in content.files.items()]
            access.found[TABLE] = f"version {content.version.version or 'without rows'}, {len(files):,} files"
        if access.refused:
            return access
    storage = storage_at(location)
    access.credentials = credentials_of(storage.root)
    readable: Readable = source_storage(location)
    if not is_lake(place):
        with access.step(LIST):
            root = source_root(location)
            readable, one = root.storage, root.source.file_name
            storage = storage_at(readable.root)
            files = [FileInfo(one, 0, 0)] if one else list(islice(readable.list(), 1))
            access.found[LIST] = "one file" if one else "files" if files else "no files"
    with access.step(READ):
        for file in files[:1]:
            with readable.open(file.path) as opened:
                read = opened.read_range(0, min(READ_BYTES, opened.size))
            access.found[READ] = f"{len(read)} bytes of {file.path}"
    with access.step(CREATE):
        probe(storage)
        access.found[CREATE] = "the second write of a name was refused, as it has to be"
    if CREATE in access.found:
        with access.step(CLOCK):
            ahead = time.time() - time_of_store(storage)
            access.found[CLOCK] = f"this machine is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
        above, name = split(storage.root)
        if LIST in access.refused and name:
            storage_at(above).delete_empty(name)  # the folder that the probe made
        else:
            storage.delete_empty(split(PROBE_FOLDER)[0])
    return access


def credentials_of(root: str) -> str:
    """Where the client of a root's store finds credentials, and when they end, where they tell. It has no secret."""
    scheme, colon, _ = root.partition("://")
    if not colon:
        return Access.credentials
    vendor = vendor_of(root)
    if vendor is not None and (vended := vendor.credential(root)) is not None:
        moment = None if vended.end is None else datetime.fromtimestamp(vended.end, UTC).strftime(TIME)
        return f"vended by the catalog of {vendor.name}, until {moment or UNTOLD}, and renewed before"
    known = CREDENTIALS.get(scheme, ())
    there = next((names for names in known if os.environ.get(names[0])), None)
    if there is None:
        return "none in the environment: public data, or the role of the machine"
    shown = f"{' and '.join(name for name in there if os.environ.get(name))} of the environment"
    if there[0] == SAS and (ends := parse_qs(os.environ[SAS].lstrip("?")).get("se")):
        return f"{shown}, until {ends[0]}"
    if there[0] in RENEWED:
        return f"{shown}, renewed from the file that it names"
    if os.environ.get(there[-1]) and len(there) > 1:
        return f"{shown}, until {os.environ.get(ENDS) or UNTOLD}"
    return f"{shown}, without an end"
