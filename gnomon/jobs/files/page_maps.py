"""The page maps of a source file."""

from gnomon.base.actions import Action
from gnomon.jobs.files.source_files import listed
from gnomon.shadow.errors import StalePointer
from gnomon.shadow.metadata import DEEP, IndexSpec, SourceFileEntry
from gnomon.shadow.storage import Readable
from gnomon.sources import open_mapped


def exported_maps(source: Readable, spec: IndexSpec, file: SourceFileEntry) -> bytes:
    """The page maps of a file. StalePointer where the file changed since the listing."""
    with listed(source, file.info) as reader:
        found = open_mapped(reader, spec.format, spec.read_options)
        if found.digest != file.digest:
            what = "the file changed while its page maps were made"
            raise StalePointer(what, reader.name, action=Action.BUILD_AGAIN)
        return found.export_maps(reader, spec.page_maps == DEEP)
