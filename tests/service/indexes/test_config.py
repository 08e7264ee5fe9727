"""service/indexes/places.py: names of indexes, given or from folders, and their errors."""

import pytest

from gnomon.service.indexes.places import Place, places
from gnomon.service.settings.table import Settings
from gnomon.shadow import UsageError


def test_an_index_is_called_as_given_or_after_its_last_folder() -> None:
    settings = Settings(
        indexes=["/lake/pages", "logs=s3://bucket/a=1/log index/", "s3://bucket/a=1/my index/"],
        columns={"logs": ["id", "text"]},
        hidden_columns={"pages": ["email"]},
    )
    assert places(settings) == [
        Place("pages", "/lake/pages", None, ("email",)),
        Place("logs", "s3://bucket/a=1/log index/", ("id", "text")),
        Place("my-index", "s3://bucket/a=1/my index/"),
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"indexes": ["/a/x", "/b/x"]}, "two are called x; give each a name of its own, like x2=/b/x"),
        ({"indexes": ["a b=/x"]}, "expected letters, digits and _.- before =, found 'a b'"),
        ({"indexes": ["=/x"]}, "before =, found ''"),
        ({"indexes": ["x="]}, "expected a path or URL after ="),
        ({"indexes": ["/x"], "columns": {"y": ["a"]}}, "columns: there is no index y; there are x"),
        ({"indexes": ["/x"], "hidden_columns": {"y": ["a"]}}, "hidden_columns: there is no index y; there are x"),
    ],
)
def test_a_wrong_name_is_told_with_what_to_do(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        places(Settings(**given))
