"""Formats by name, and their detection from the bytes of a file."""

from dataclasses import replace
from importlib import import_module

import pytest

from gnomon.sources import FORMATS, DamagedSource, UnsupportedFormat, detect, open_source
from tests.sources.parquet_files import flat_table, written
from tests.sources.readers import BytesReader

PARQUET = written(flat_table(5))


def test_every_format_of_the_table_can_be_opened_by_name() -> None:
    assert open_source(BytesReader(PARQUET), "parquet").rows == 5


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnsupportedFormat, match=r"lake/x: no format 'orcc'; supported: parquet") as caught:
        open_source(BytesReader(PARQUET, "lake/x"), "orcc")
    assert caught.value.path == "lake/x"
    assert all(name in str(caught.value) for name in FORMATS)


@pytest.mark.parametrize("name", ["parquet", "avro", "orc", "sequence"])
def test_detect_knows_the_magic_that_a_format_reads(name: str) -> None:
    assert FORMATS[name].magic == import_module(f"gnomon.sources.{name}").MAGIC


def test_parquet_is_detected_by_both_its_ends() -> None:
    assert detect(BytesReader(PARQUET)) == "parquet"


def test_a_magic_longer_than_parquets_is_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "longer", replace(FORMATS["avro"], magic=b"LONGMAGIC"))
    assert detect(BytesReader(b"LONGMAGIC and more")) == "longer"
    assert detect(BytesReader(b"LONGMAGIC")) == "longer"
    assert detect(BytesReader(PARQUET)) == "parquet"
    for other in (b"LONGMAGIX and more", b"LONG"):
        with pytest.raises(UnsupportedFormat, match="the bytes match no supported format"):
            detect(BytesReader(other, "lake/x"))


@pytest.mark.parametrize("data", [b"PAR", b"id,name\n1,a\n", PARQUET[1:]])
def test_other_bytes_are_of_no_supported_format(data: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match=r"lake/x: the bytes match no supported format; supported: parquet"):
        detect(BytesReader(data, "lake/x"))


def test_what_has_no_known_format_is_refused_with_how_to_name_it() -> None:
    with pytest.raises(
        UnsupportedFormat, match=r"lake/x: an empty file, without a detectable format; supported: parquet"
    ):
        detect(BytesReader(b"", "lake/x"))
    with pytest.raises(
        UnsupportedFormat,
        match=r"by file name \(\.csv, \.tsv, .*\); name the format, as in gnomon build .* --format csv",
    ):
        detect(BytesReader(b"id,name\n1,a\n", "lake/x.txt"))


def test_a_file_that_was_cut_is_said_to_be_one() -> None:
    with pytest.raises(
        DamagedSource, match=r"lake/x at byte .*: starts like a Parquet file, but does not end like one"
    ):
        detect(BytesReader(PARQUET[:-1], "lake/x"))
    with pytest.raises(DamagedSource, match="lake/x at byte 4: starts like a Parquet file, but does not end like one"):
        detect(BytesReader(b"PAR1", "lake/x"))


def test_an_encrypted_parquet_footer_is_said_to_be_one() -> None:
    with pytest.raises(UnsupportedFormat, match="lake/x: a Parquet file whose footer is encrypted"):
        detect(BytesReader(b"PARE" + PARQUET[4:-4] + b"PARE", "lake/x"))
