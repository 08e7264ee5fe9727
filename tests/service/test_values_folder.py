"""A key-value folder is served like an index."""

from pathlib import Path

import pyarrow as pa

from gnomon.jobs.build import write_btree
from gnomon.service.api.responses import ARROW
from gnomon.service.settings.table import Settings
from tests.service.lake import Client


def test_rows_are_the_values(tmp_path: Path) -> None:
    write_btree(pa.table({"k": ["a/b", "c"], "v": [1, 2]}), tmp_path, ["k"], buckets=2, mode="overwrite")
    client = Client(Settings(indexes=[str(tmp_path)]))
    assert client.get("/rows/a/b").json()["rows"] == [{"k": "a/b", "v": 1}]
    missing = client.get("/rows/absent")
    assert (missing.status_code, missing.json()["covered"]["rows"]) == (404, 2)
    assert client.served.cover()
    ready = client.get("/readyz").json()
    [of_index] = ready["indexes"].values()
    assert (ready["ready"], of_index["coverage"]["new"]) == (True, 0)
    write_btree(pa.table({"k": ["c"], "w": [2.5]}), tmp_path, ["k"], buckets=2, mode="overwrite")
    assert client.served.refresh()
    assert client.get("/rows/c").json()["rows"] == [{"k": "c", "w": 2.5}]


def test_more_values_than_an_answer_takes_are_refused(tmp_path: Path) -> None:
    write_btree(pa.table({"k": ["many"] * 5 + ["one"], "v": range(6)}), tmp_path, ["k"], buckets=2, mode="overwrite")
    client = Client(Settings(indexes=[f"values={tmp_path}"], max_rows=4))
    says = "the key has 5 rows; an answer takes 4 at most: set a limit, or narrow it with where (setting max_rows)"
    refused = client.get("/rows/many")
    assert (refused.status_code, refused.json()["title"], refused.json()["detail"]) == (413, "Answer too large", says)
    many, one = client.post({"keys": ["many", "one"]}).json()["results"]
    assert (many["error"]["detail"], one["rows"]) == (says, [{"k": "one", "v": 5}])
    assert client.ask("GET", "/rows/many", headers={"accept": ARROW}).status_code == 413
    assert client.get("/rows/many?_limit=4").json()["count"] == 5
