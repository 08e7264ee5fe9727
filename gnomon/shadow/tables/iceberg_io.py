"""Iceberg's files through the stores of Gnomon, so that a table is read with the settings and credentials that its data
files are read with."""

import io

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from gnomon.shadow.storage import OpenFile, split, storage_at

IMPLEMENTATION = f"{__name__}.StorageFileIO"  # the value of pyiceberg's property py-io-impl


class StorageFileIO(FileIO):
    """Reads files of any store that Gnomon knows; writes none."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        return _Input(location)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError(str(location))


class _Input(InputFile):
    def _opened(self) -> OpenFile:
        above, name = split(storage_at(self.location).root)
        return storage_at(above).open(name)

    def __len__(self) -> int:
        with self._opened() as file:
            return file.size

    def exists(self) -> bool:
        try:
            with self._opened():
                return True
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False

    def open(self, seekable: bool = True) -> InputStream:
        with self._opened() as file:
            return io.BytesIO(file.read_range(0, file.size))
