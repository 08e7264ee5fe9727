"""Write the pages of the site, and build it: `make docs`. A warning of the build is an error.

A page in `docs/` is written once, for a code host and for the site. Here each gets its place on the site, and each link
that leaves `docs/` leads to a page or a file of the site. Two pages are made from the code: one from the docstrings of
`gnomon.__all__`, and one from the OpenAPI document of the service."""

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import griffe
import yaml

from gnomon.service.api.openapi import document
from gnomon.service.application import create_app
from gnomon.service.settings import Settings

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("mkdocs.yml")
# Pages beyond docs/, by their place on the site. README.md is two pages of it.
START = "start.md"
BEYOND = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "deploy/README.md": "operations/deploy.md",
    "examples/README.md": "examples.md",
}
# The parts of the site that have pages from elsewhere, and their last pages.
MORE = {
    "First steps": ["examples.md"],
    "Reference": ["reference/python-api.md", "reference/http-api.md"],
    "Operations": ["operations/deploy.md"],
    "Project": [f"project/{name}.md" for name in ("contributing", "security", "conduct", "changelog")],
}
PLUGINS = {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT)]}}}}
WIDE = "---\nhide: [navigation, toc]\n---\n\n"  # a page without lists at its sides
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
FILE_NAME = re.compile(r"(?<=\[)[\w./-]+\.md(?=\]\(([^)#\s]+))")  # as the text of a link
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
# The end of a line of a paragraph, before a list. The site's Markdown needs an empty line between them.
LIST = re.compile(r"(?<=\n)((?![-\s#|>`])[^\n]+)\n(?=- )")


def write_pages(target: Path) -> list[Path]:
    """Write the pages below `target`, with `mkdocs.yml`. Returns the pages. ValueError where a link leads nowhere."""
    docs = target / "docs"
    shutil.rmtree(target, ignore_errors=True)
    places = _places()
    texts = {place: _linked(ROOT / source, place, places, docs) for source, place in places.items()}
    index = texts.pop("all.md")
    first, start = _halves(texts.pop("index.md"))
    texts["index.md"] = f"{WIDE}{first}\n{_after_introduction(index)}"
    texts[START] = f"# Start\n\n{start}"
    document = _openapi()
    texts["reference/python-api.md"] = "\n".join(python_api())
    texts["reference/http-api.md"] = "\n".join(http_api(document))
    for place, text in texts.items():
        _file(docs / place).write_text(text, encoding="utf-8")
    _file(docs / "reference/openapi.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    shutil.copy(CONFIG.with_name("site.css"), docs)
    config = {"INHERIT": str(CONFIG), "nav": _nav(index), "plugins": PLUGINS}
    (target / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return [docs / place for place in texts]


def _places() -> dict[str, str]:
    """The place on the site of each page, by its path in the repository. The index is a part of the first page."""
    pages = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return BEYOND | {page: page.removeprefix("docs/") for page in pages} | {"docs/index.md": "all.md"}


def _linked(source: Path, place: str, places: dict[str, str], docs: Path) -> str:
    """The text of a page, with its links as they are on the site: a link that shows the name of a page shows its title.
    A linked file that is no page is copied to the site."""

    def moved(link: re.Match[str]) -> str:
        found, anchor = (source.parent / link[1]).resolve(), link[2] or ""
        if not found.is_file():
            raise ValueError(f"{source.relative_to(ROOT)}: the link {link[1]} leads to no file; name a file")
        path = found.relative_to(ROOT).as_posix()
        to = START if path == "README.md" and anchor else places.get(path)
        if to is None:
            to = path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
            shutil.copy(found, _file(docs / to))
        return os.path.relpath(to.replace("all.md", "index.md"), Path(place).parent) + anchor

    def titled(name: re.Match[str]) -> str:
        found = (source.parent / name[1]).resolve()
        title = re.match(r"# (.+)", found.read_text(encoding="utf-8")) if found.is_file() else None
        return title[1] if title else name[0]

    parts = CODE.split(source.read_text(encoding="utf-8"))
    text = "".join(
        part if number % 2 else LINK.sub(moved, FILE_NAME.sub(titled, part)) for number, part in enumerate(parts)
    )
    text = LIST.sub(r"\1\n\n", text)
    return re.sub(r"^```(\w+) .*$", r"```\1", text, flags=re.MULTILINE)  # a second word is for our tests


def _halves(readme: str) -> tuple[str, str]:
    """The first screen of README.md, and its sections; its list of pages is left out, for the site has its own."""
    first, heading, rest = readme.partition("\n## ")
    return first, (heading + rest.partition("\n## Read on\n")[0]).lstrip("\n") + "\n"


def _after_introduction(index: str) -> str:
    """The index of the pages without its heading and its first paragraph, which leads to README.md."""
    return index.split("\n\n", 2)[2]


def _nav(index: str) -> list[Any]:
    """The order of the pages: that of the table in docs/index.md, whose bold lines begin a part."""
    pages: list[Any] = [START]
    parts = {"First steps": pages}
    elsewhere = {"index.md", *(place for more in MORE.values() for place in more)}
    for row in re.findall(r"^\| .*$", index, re.MULTILINE):
        if heading := re.match(r"\| \*\*(.+?)\*\*", row):
            pages = parts.setdefault(heading[1], [])
        pages += [
            place for place, _ in LINK.findall(row) if place.endswith(".md") and place not in {*elsewhere, *pages}
        ]
    for part, more in MORE.items():
        parts.setdefault(part, []).extend(more)
    decisions = [place for place in parts["Internals"] if place.startswith("internals/decisions/")]
    parts["Internals"] = [*(one for one in parts["Internals"] if one not in decisions), {"Decisions": decisions}]
    return ["index.md", *({part: pages} for part, pages in parts.items())]


def python_api() -> Iterator[str]:
    """The page of the public names, by their kind. mkdocstrings puts the docstrings in."""
    package = griffe.load("gnomon", search_paths=[ROOT], allow_inspection=False)
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in map(str, package.exports or ()):
        found = _documented(package, name)
        is_error = isinstance(found, griffe.Class) and found.canonical_path.split(".")[-2] == "errors"
        group = "Errors" if is_error else "Classes" if isinstance(found, griffe.Class) else "Functions"
        groups[group].append(found.canonical_path)
    yield "# Python API\n"
    yield "All public names of the package `gnomon`, with their docstrings. [Python](python.md) shows how to use them."
    yield "An argument `engine` is the SparkSession, or None for this process.\n"
    for group, paths in groups.items():
        yield f"## {group}\n"
        yield from (f"::: {path}\n" for path in paths)


def _documented(package: griffe.Module | griffe.Alias, name: str) -> griffe.Class | griffe.Function:
    """The class or function that has the docstring of a public name: where Spark's engine wraps a job, the job."""
    jobs = [module for module in package["jobs"].modules.values() if name in {str(one) for one in module.exports or ()}]
    for found in (package[name], *(module[name] for module in jobs)):
        target = found.final_target if isinstance(found, griffe.Alias) else found
        if isinstance(target, griffe.Module) and name in target.functions:
            target = target.functions[name]
        if isinstance(target, griffe.Class | griffe.Function) and target.docstring is not None:
            return target
    raise ValueError(f"gnomon.{name} has no docstring that its source shows; write one")


def _openapi() -> dict[str, Any]:
    """The OpenAPI document of the service, which is the same for every index, also for one that cannot be opened."""
    logging.getLogger("gnomon.service").setLevel(logging.CRITICAL)
    settings = Settings(indexes=("rows=memory://none/index",))
    return document(create_app(settings, patient=True).routes, settings, "")


def http_api(document: dict[str, Any]) -> Iterator[str]:
    """The page of the routes: their parameters, answers and examples, then the failures, then the shapes."""
    yield "# HTTP API\n"
    yield f"{document['info']['description']} [HTTP](http.md) explains keys, options and values, with examples."
    yield "This page lists what the [OpenAPI document](openapi.json) says, which a service has at `/openapi.json`.\n"
    failures: dict[str, str] = {}
    for path, operations in document["paths"].items():
        if path.startswith("/indexes/{name}/"):
            continue  # the same as the route without a name
        named = f"/indexes/{{name}}{path}"
        for method, operation in operations.items():
            failures |= {status: answer["description"] for status, answer in operation["responses"].items()}
            if method == "head":
                yield f"**HEAD**: {operation.get('description', 'The status and the headers of GET.')}\n"
                continue
            yield f"## {method.upper()} {path}\n"
            yield f"{operation['description']}\n"
            if named in document["paths"]:
                yield f"The same for an index by its name: `{method.upper()} {named}`.\n"
            yield from _parameters(operation)
            yield from _answers(operation)
    yield "## Statuses\n"
    yield "A failure is a [Problem](#problem). A 200 and a 503 of `/readyz` have the shape that the route names.\n"
    yield from _table(("status", "meaning"), [(one, failures[one]) for one in sorted(failures) if one != "200"])
    yield "## Shapes\n"
    for name, schema in document["components"]["schemas"].items():
        yield f"### {name}\n"
        yield f"{schema.get('description', '')}\n"
        required = schema.get("required", ())
        rows = [
            (f"`{member}`", _type(of) + ("" if member in required else ", optional"), of.get("description", ""))
            for member, of in schema.get("properties", {}).items()
        ]
        yield from _table(("member", "type", "meaning"), rows)


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), one["description"])
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {})
    rows += [("body", media, _type(of["schema"]), "") for media, of in body.items()]
    yield from _table(("parameter", "in", "type", "meaning"), rows)
    for of in body.values():
        yield from _examples(of, "Body")


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    answer = operation["responses"]["200"]
    shapes = [f"{_type(of['schema'])} (`{media}`)" for media, of in answer.get("content", {}).items()]
    others = ", ".join(status for status in operation["responses"] if status != "200")
    yield f"**200**: {answer['description'].rstrip('.')}. {'; '.join(shapes)}\n"
    yield f"**Other [statuses](#statuses)**: {others}\n"
    for of in answer.get("content", {}).values():
        yield from _examples(of, "Answer")


def _examples(content: dict[str, Any], what: str) -> Iterator[str]:
    for name, example in content.get("examples", {}).items():
        request = f"{example['summary']}\n" if "summary" in example else ""
        lines = f"{request}{json.dumps(example['value'], indent=2, ensure_ascii=False)}".splitlines()
        yield f'??? example "{what}: {name}"\n'
        yield from (f"    {line}".rstrip() for line in ("```", *lines, "```", ""))


def _type(schema: dict[str, Any]) -> str:
    """The type that a schema describes, with a link to the shape that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    return f"list of {_type(schema.get('items', {}))}" if kind == "array" else str(kind)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        for row in (heads, ["---"] * len(heads), *rows):
            yield f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in row)} |"
        yield ""


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> int:
    """Build the site into `build/site`, or where the argument says. Returns the exit code of the build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "build/site")
    site = parser.parse_args().site.resolve()
    pages = site.with_name(f"{site.name}-pages")
    written = write_pages(pages)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", pages / "mkdocs.yml"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # a notice of ten lines about Zensical
    code = subprocess.run([*command, "--site-dir", site], check=False, env=quiet).returncode
    if code == 0:
        print(f"{len(written)} pages: {os.path.relpath(site)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
