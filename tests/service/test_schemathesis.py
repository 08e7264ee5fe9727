"""The interface, compared with its own description: valid and invalid requests from the OpenAPI document.

No answer is a fault of the service, and each has a status, a media type, headers and a body of the document. `pytest -m
soak tests/service/test_schemathesis.py` makes many more."""

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from gnomon.service.api.responses import ARROW, JSON
from gnomon.service.application import create_app
from gnomon.service.settings.table import Settings
from tests.service.lake import TWICE, make_crawl, make_orders, make_visits

# The strategies of schemathesis use `random`, which Hypothesis warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

ALLOWED, FORBIDDEN, MANY = 30, 15, 3000  # requests per operation
AT = "2026-01-01T12:30:00.123456789Z"
OPERATIONS = [
    (path, method)
    for prefix in ("", "/indexes/{name}")
    for path, methods in ((f"{prefix}/rows", ("GET", "HEAD", "POST")), (f"{prefix}/rows/{{key}}", ("GET", "HEAD")))
    for method in methods
]
OPERATIONS += [("/indexes/{name}", "GET"), ("/indexes/{name}", "HEAD")]
PLAIN = [(path, method) for path in ("/indexes", "/healthz", "/readyz") for method in ("GET", "HEAD")]
KEYS: dict[str, list[dict[str, str]]] = {
    "crawl": [{"url": TWICE}, {"url": "second"}, {"url": "none"}],
    "orders": [{"country": "de", "id": "1"}, {"country": "de", "id": "x"}],
    "visits": [{"id": "00010203-0405-0607-0809-0a0b0c0d0e0f", "time": "12:30:00.005", "at": AT, "n": str(2**64 - 1)}],
}
OPTIONS: list[list[tuple[str, Any]]] = [
    [],
    [("_limit", 1), ("_snapshot", 1)],
    [("_explain", True)],
    [("_columns", ["url", "dt"])],
    [("_snapshot", 9)],
]
RANGES: dict[str, list[dict[str, Any]]] = {
    "crawl": [{"_prefix": ["a"]}, {"_from": ["a"], "_to": ["twice"], "_inclusive": True, "_limit": 2}],
    "orders": [{"_from": ["de", "1"]}, {"_prefix": ["d"], "_reverse": True}, {"_from": ["de", "x"]}],
    "visits": [{"_reverse": False}, {"_to": ["00010203-0405-0607-0809-0a0b0c0d0e0f"]}],
}
# The document does not have the existing columns, partitions, snapshots and indexes. Requests with other names are
# answered 400 and 404.
UNSAID = [positive_data_acceptance]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> BaseSchema:
    folder = tmp_path_factory.mktemp("several")
    made = {"crawl": make_crawl, "orders": make_orders, "visits": make_visits}
    indexes = [f"{name}={make(folder / name).indexes[0]}" for name, make in made.items()]
    app = create_app(Settings(indexes=indexes, max_rows=3, max_answer_bytes=2000))
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def real(case: Case, draw: Callable[[SearchStrategy[Any]], Any]) -> None:
    """Replace many generated values by existing ones: otherwise few requests would reach a row."""

    def one_of(*values: Any) -> Any:
        return draw(strategies.sampled_from(values))

    name = one_of("crawl", "orders", "visits") if "name" in case.path_parameters else "crawl"
    if "name" in case.path_parameters:
        case.path_parameters["name"] = name
    if "key" in case.path_parameters and one_of(True, False):
        case.path_parameters["key"] = one_of(TWICE, "second", "a/b", "100%", "none")
    if case.method == "POST":
        keys = strategies.sampled_from([TWICE, "second", ["de", 1], {"country": None, "id": 3}, None, [], 5])
        case.body = {"keys": draw(strategies.lists(keys, max_size=4))}
        case.query = {}
    elif "key" not in case.path_parameters and one_of(True, False):
        case.query = dict(one_of(*KEYS[name], *RANGES[name]))
    case.query |= dict(one_of(*OPTIONS, *([("_where", ["dt=2026-01-02"])] for _ in range(name == "crawl"))))
    case.headers["Accept"] = one_of(JSON, ARROW, f"{ARROW};q=0.5, */*;q=0.1", "text/html")


def conforms(schema: BaseSchema, path: str, method: str, mode: GenerationMode, examples: int) -> dict[int, str]:
    """Send requests to an operation, a few of them the same in each run. Returns each status with a request that got
    it."""
    operation: APIOperation = schema[path][method]
    statuses: dict[int, str] = {}

    @hypothesis.settings(
        max_examples=examples,
        derandomize=examples < MANY,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(operation.as_strategy(generation_mode=mode), strategies.data())
    def ask(case: Case, data: strategies.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:
            real(case, data.draw)
        response = case.call()
        statuses.setdefault(response.status_code, case.as_curl_command())
        refused = [negative_data_rejection] if response.status_code == 413 else []  # the check does not know it
        case.validate_response(response, excluded_checks=[*UNSAID, *refused])

    ask()
    return statuses


def test_the_document_is_one_of_openapi(schema: BaseSchema) -> None:
    schema.validate()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.slow
def test_requests_that_the_document_allows_are_answered_as_it_says(schema: BaseSchema, path: str, method: str) -> None:
    statuses = conforms(schema, path, method, GenerationMode.POSITIVE, ALLOWED)
    assert 200 in statuses
    assert set(statuses) <= {200, 400, 404, 406, 413}, statuses


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.slow
def test_requests_that_the_document_forbids_are_refused(schema: BaseSchema, path: str, method: str) -> None:
    statuses = conforms(schema, path, method, GenerationMode.NEGATIVE, FORBIDDEN)
    assert set(statuses) <= {400, 404, 405, 413}, statuses


@pytest.mark.parametrize(("path", "method"), PLAIN)
def test_routes_without_parameters_answer_as_the_document_says(schema: BaseSchema, path: str, method: str) -> None:
    assert conforms(schema, path, method, GenerationMode.POSITIVE, 1).keys() == {200}


@pytest.mark.nightly
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_thousands_of_requests_are_answered_as_the_document_says(schema: BaseSchema, path: str, method: str) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        conforms(schema, path, method, mode, MANY)
