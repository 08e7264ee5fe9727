"""docs/guide/flink.md is right: its look-up join runs in Flink, against a service.

It needs the jars of Flink and of the connector, 120 MB, in the folder GNOMON_TEST_FLINK. `mvn
dependency:copy-dependencies` writes them, in a project that depends on `com.getindata:flink-http-connector:0.25.0`, on
`org.slf4j:slf4j-simple:1.7.36`, and on these of `org.apache.flink` 1.20.3: `flink-table-planner-loader`,
`flink-table-runtime`, `flink-table-api-java-bridge`, `flink-clients`, `flink-json`, `flink-connector-base`."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from gnomon import build
from gnomon.service.settings import Settings
from tests.service.live import live
from tests.shadow.make_index import write_source

JARS = os.environ.get("GNOMON_TEST_FLINK", "")
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not JARS, reason="GNOMON_TEST_FLINK names no folder with the jars of Flink"),
]

PAGE = (Path(__file__).parents[2] / "docs/guide/flink.md").read_text(encoding="utf-8")
VISITS = """CREATE TEMPORARY VIEW visits AS SELECT * FROM (VALUES
  (1, 'https://a.example/x y?b=1&c=%20'), (2, 'nowhere'), (3, 'b/ü'), (4, 'twice')) AS t(visitor, url)"""
PROGRAM = """
import java.nio.file.*;
import org.apache.flink.table.api.*;

public class Statements {
  public static void main(String[] files) throws Exception {
    TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    for (String statement : Files.readString(Path.of(files[0])).split(";")) {
      if (statement.isBlank()) continue;
      TableResult result = flink.executeSql(statement);
      if (result.getResultKind() == ResultKind.SUCCESS_WITH_CONTENT)
        try (var rows = result.collect()) {
          while (rows.hasNext()) System.out.println(rows.next());
        }
    }
    System.exit(0);
  }
}
"""
OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "time", "util")]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A function that runs statements against a service of the indexes `pages` and `orders`."""
    urls = ["https://a.example/x y?b=1&c=%20", "b/ü", "twice", "twice"]
    pages = pa.table({"url": urls, "status": [200, 404, 301, 302], "title": ["A", "B", "C", "D"]})
    orders = pa.table({"country": ["de", "de", "fr"], "id": [1, 2, 2], "total": ["1.00", "2.00", "3.00"]})
    for name, table, keys in (("pages", pages, ["url"]), ("orders", orders, ["country", "id"])):
        write_source(tmp_path / name, {"a.parquet": table})
        build(None, str(tmp_path / name), str(tmp_path / f"index-{name}"), keys)
    (tmp_path / "Statements.java").write_text(PROGRAM)
    places = tuple(f"{name}={tmp_path}/index-{name}" for name in ("pages", "orders"))
    settings = Settings(indexes=places, port=0)  # type: ignore[arg-type]

    def runs(*statements: str) -> subprocess.CompletedProcess[str]:
        with live(settings) as service:
            text = ";\n".join(statements).replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
            (tmp_path / "statements.sql").write_text(text)
            java = shutil.which("java")
            assert java is not None
            command = [java, *OPENED, "-cp", f"{JARS}/*", "Statements.java", "statements.sql"]
            return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    return runs


def of_page() -> str:
    [block] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def test_a_look_up_join_gives_the_rows_of_each_key(run: Run) -> None:
    done = run(VISITS, of_page())
    assert done.returncode == 0, done.stderr
    expected = ["+I[1, 200, A]", "+I[2, null, null]", "+I[3, 404, B]", "+I[4, 301, C]", "+I[4, 302, D]"]
    assert sorted(done.stdout.splitlines()) == expected


def test_an_event_with_several_keys_and_a_key_of_several_columns_are_asked(run: Run) -> None:
    ddl = of_page().split(";")[0].replace("/pages/", "/orders/").replace("?_columns=status,title", "")
    ddl = ddl.replace("TABLE pages", "TABLE orders").replace("keys ARRAY<STRING>", "keys ARRAY<ARRAY<STRING>>")
    ddl = ddl.replace("ROW<status INT, title STRING>", "ROW<total STRING>")
    keys = ", ".join(f"ARRAY[{country}, CAST({id} AS STRING)]" for country, id in (("c", "i"), ("d", "j"), ("d", "v")))
    asked = f"""CREATE TEMPORARY VIEW asked AS SELECT v, ARRAY[{keys}] AS keys, PROCTIME() AS seen
      FROM (VALUES (7, 'de', 1, 'fr', 2), (8, 'fr', 2, 'de', 2)) AS t(v, c, i, d, j)"""
    query = """SELECT asked.v, r.found, r.`rows` FROM asked
      JOIN orders FOR SYSTEM_TIME AS OF asked.seen AS p ON asked.keys = p.keys
      CROSS JOIN UNNEST(p.results) AS r(found, `rows`, error)"""
    done = run(ddl, asked, query)
    assert done.returncode == 0, done.stderr
    of_7 = ["+I[7, 1, [+I[1.00]]]", "+I[7, 1, [+I[3.00]]]", "+I[7, 0, []]"]
    of_8 = ["+I[8, 1, [+I[3.00]]]", "+I[8, 1, [+I[2.00]]]", "+I[8, 0, []]"]
    assert done.stdout.splitlines() == of_7 + of_8


def test_a_key_that_cannot_be_answered_fails_the_job(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "pages/a.parquet").open("ab") as file:
        file.write(b"more")
    done = run(VISITS, of_page())
    assert done.returncode != 0
    assert "the file changed since it was indexed" in done.stderr
    assert not re.search(r"\[[134], null", done.stdout)


def test_a_wrong_name_of_an_index_fails_the_job(run: Run) -> None:
    done = run(VISITS, of_page().replace("/indexes/pages/", "/indexes/other/"))
    assert done.returncode != 0
    assert "404" in done.stderr
    assert done.stdout == ""
