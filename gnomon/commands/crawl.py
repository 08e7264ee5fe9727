"""The demo's source: an invented web crawl, and a batch to append to it, written by Spark or by this process.

All data are functions of page numbers and a seed. A page's URL depends on its number only, so the demo can name a
present URL and an absent one without reading data. Rows are made a batch at a time: text is a sequence of numbers into
a table of tokens, which Arrow joins into HTML without a Python object per row.
"""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_DAY = date(2026, 1, 1)
SMALL_SHARE = 0.2  # share of the pages in the days after the first; the first day is one large file
FILES_PER_SMALL_DAY = 2
BATCH_ROWS = 1_000  # about 5 MB of HTML
GROUP_BATCHES, PAGE_ROWS = 25, 100  # about Spark's row groups of 128 MB and pages of 1 MB
BODY_TOKENS = (40, 1_065)  # a page, evenly spread
HTTP_STATUS = np.repeat(np.array([200, 301, 404, 410, 503], np.int32), [236, 8, 6, 2, 4])  # 256 of them
SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("merchant_id", pa.int64()),
        ("crawl_ts", pa.timestamp("us", tz="UTC")),
        ("status", pa.int32()),
        ("html", pa.string()),
        ("dt", pa.string()),
    ]
)
SPARK_SCHEMA = "url string, merchant_id long, crawl_ts timestamp, status int, html string, dt string"
PageNumbers = Callable[[np.ndarray], np.ndarray]  # gives the page numbers of rows, from their places in the data set


class File(NamedTuple):
    """One file to write: rows `start` to `stop` of its data set, all of one day (0 is the first)."""

    day: int
    start: int
    stop: int


class Increment(NamedTuple):
    """The rows of a batch to append."""

    rows: int
    known: int  # rows whose URL the crawl already has
    new: int  # distinct URLs the crawl does not have: the rows that an append adds


def day_name(day: int) -> str:
    """The `dt` of a day, counted from 0: `day_name(0)` is "2026-01-01"."""
    return (FIRST_DAY + timedelta(days=day)).isoformat()


def write_crawl(
    spark: "SparkSession | None", path: str, pages: int = 200_000, partitions: int = 6, seed: int = 2026
) -> None:
    """Write pages 0 to `pages` - 1 as Parquet in `partitions` folders `dt=2026-01-01`, ... below `path`.

    The first day holds four fifths of the pages, page 0 among them, in one file (at 200,000 pages several row
    groups of Spark's default 128 MB); the other days are small. Rows depend on `seed`, `pages` and
    `partitions`, never on Spark's parallelism. Without a session this process writes the same rows. `path` must not
    exist.
    """
    if spark is None:
        _write_locally(crawl_files(pages, partitions), same_number, seed, path, in_days=True)
        return
    frame = _frame(spark, crawl_files(pages, partitions), same_number, seed)
    name = "spark.sql.maxConcurrentOutputFileWriters"  # above 0, Spark does not sort a gigabyte by `dt` first
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    try:
        frame.write.partitionBy("dt").parquet(path)
    finally:
        spark.conf.set(name, before)


def write_increment(
    spark: "SparkSession | None",
    path: str,
    crawl_pages: int = 200_000,
    rows: int = 20_000,
    day: int = 6,
    seed: int = 2027,
) -> Increment:
    """Write a batch for an append on a crawl of `crawl_pages` pages: Parquet in the one folder `path`.

    Half of its rows are pages of the crawl, crawled again on `day`; half are new; a tenth repeats a URL of
    the batch. Columns are the crawl's, `dt` among them as text. `path` must not exist.
    """
    files = [File(day, 0, rows // 2), File(day, rows // 2, rows)]
    numbers = partial(increment_pages, crawl_pages=crawl_pages, rows=rows)
    if spark is None:
        _write_locally(files, numbers, seed, path, in_days=False)
    else:
        _frame(spark, files, numbers, seed).write.parquet(path)
    pages = numbers(np.arange(rows))
    new = pages[pages >= crawl_pages]
    return Increment(rows, known=rows - new.size, new=np.unique(new).size)


def crawl_files(pages: int, partitions: int) -> list[File]:
    """The files of a crawl, the first day's first."""
    small = FILES_PER_SMALL_DAY * (partitions - 1)
    first = pages - int(pages * SMALL_SHARE) if small else pages
    cuts = np.linspace(first, pages, small + 1).astype(int).tolist()
    days = (1 + file // FILES_PER_SMALL_DAY for file in range(small))
    return [File(0, 0, first), *map(File, days, cuts[:-1], cuts[1:])]


def increment_pages(row: np.ndarray, crawl_pages: int, rows: int) -> np.ndarray:
    """The page numbers of rows of a batch: alternately a page of the crawl and a page after its last.

    The last tenth of the rows repeats the first tenth; beyond that a page comes once, as long as the batch is
    no larger than the crawl.
    """
    distinct = rows - rows // 20 * 2
    place = row % max(distinct, 1)
    half = place // 2
    old = half * max(2 * crawl_pages // max(distinct, 1), 1) % crawl_pages
    return np.where(place % 2 == 0, old, crawl_pages + half)


def same_number(row: np.ndarray) -> np.ndarray:
    """Row n of a crawl is page n."""
    return row


def _write_locally(files: list[File], numbers: PageNumbers, seed: int, path: str, in_days: bool) -> None:
    """Write each of `files` as one Parquet file, `in_days` in folders `dt=`, in this process."""
    Path(path).mkdir(parents=True)
    for number, file in enumerate(files):
        folder = Path(path, f"dt={day_name(file.day)}") if in_days else Path(path)
        folder.mkdir(exist_ok=True)
        schema = pa.schema([field for field in SCHEMA if not in_days or field.name != "dt"])
        batches = (batch.select(schema.names) for batch in file_batches(file, numbers, seed))
        path_of_file = folder / f"part-{number:05}.snappy.parquet"
        with pq.ParquetWriter(path_of_file, schema, write_batch_size=PAGE_ROWS) as out:
            while of_group := list(islice(batches, GROUP_BATCHES)):
                out.write_table(pa.Table.from_batches(of_group))


def _frame(spark: "SparkSession", files: list[File], numbers: PageNumbers, seed: int) -> "DataFrame":
    """The rows of `files`, with one Spark task per file."""
    tasks = spark.range(0, len(files), 1, len(files))
    return tasks.mapInArrow(partial(_rows_of_tasks, files=files, numbers=numbers, seed=seed), SPARK_SCHEMA)


def _rows_of_tasks(
    batches: Iterator[pa.RecordBatch], files: list[File], numbers: PageNumbers, seed: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from file_batches(files[task], numbers, seed)


def file_batches(file: File, numbers: PageNumbers, seed: int) -> Iterator[pa.RecordBatch]:
    """The rows of one file in order, always in the same batches."""
    for start in range(file.start, file.stop, BATCH_ROWS):
        rows = np.arange(start, min(start + BATCH_ROWS, file.stop))
        yield page_batch(file, rows, numbers(rows), seed)


def page_batch(file: File, rows: np.ndarray, pages: np.ndarray, seed: int) -> pa.RecordBatch:
    """`rows` of `file`, which are `pages`; the day's crawl visits the file's rows at an even pace."""
    random = np.random.default_rng([seed, file.day, rows[0]])
    urls = page_urls(pages)
    merchants = _merchants(pages)
    midnight = np.datetime64(day_name(file.day), "us").astype(np.int64)
    times = midnight + (rows - file.start) * (86_400_000_000 // (file.stop - file.start))
    columns = [
        urls,
        pa.array(FIRST_MERCHANT_ID + merchants),
        pa.array(times).cast(pa.timestamp("us")).cast(SCHEMA.field("crawl_ts").type),
        pa.array(HTTP_STATUS[random.integers(0, HTTP_STATUS.size, rows.size)]),
        html_pages(random, urls, merchants),
        pa.repeat(day_name(file.day), rows.size),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


# URLs


def _words(text: str) -> list[str]:
    return text.split()


class Shape(NamedTuple):
    """One way shops write URLs: `https://<host><folder><word><joint><word><lead><item number><tail>`.

    The lead ends and the tail begins with something other than a digit, so the item number makes URLs unique.
    """

    folder: str
    joint: str
    lead: str
    words: list[str]
    tails: list[str]


FIRST_MERCHANT_ID = 1_001
HOSTS = _words(
    "www.northlamp.example shop.brasskettle.example mossandclay.example www.velvetharbour.example "
    "tinyorchard.example store.ironfern.example www.saltpaper.example quietbicycle.example "
    "www.amberloft.example market.bluethistle.example owlandoak.example www.kiteworks.example"
)
PLAIN_WORDS = _words(
    "copper walnut linen folding garden winter ceramic travel wool kitchen striped glass leather harbour "
    "compact cotton evening marble pocket woven lamp kettle chair blanket bowl backpack shelf jacket "
    "clock notebook teapot lantern mirror cushion bicycle apron"
)
FOREIGN_WORDS = _words("théière façade jalapeño smörgås čajník θήκη Weißglas чайник 茶碗 毛布 유리컵 brûlée")
ESCAPED_WORDS = _words("caf%C3%A9 cr%C3%A8me olive%20wood salt%26pepper t%C3%AAte r%C3%B6d half%2Fhalf on%20sale")
SHAPES = [
    Shape("/home/", "-", "-", PLAIN_WORDS, [".html"]),
    Shape("/p/", "/", "/", PLAIN_WORDS, ["", "?ref=mail", "?ref=feed&colour=blue", "?colour=sand&size=2"]),
    Shape("/shop/", "%20", "/", PLAIN_WORDS + ESCAPED_WORDS, ["/", "/?page=1", "/reviews"]),
    Shape("/catégorie/", "-", "/", FOREIGN_WORDS, ["", "?langue=français"]),
    Shape("/search/item?q=", "+", "&id=", PLAIN_WORDS + ESCAPED_WORDS, ["", "&sort=price&dir=asc"]),
    Shape("/en/outlet/", "/", "-", PLAIN_WORDS, ["/", "/gallery/front.html", "?variant=b%2Fc"]),
]


def page_url(page: int) -> str:
    """The URL of a page by its number, 0 <= `page` < 2**32. It is unique, and the same in every crawl.

    A crawl of n pages holds 0 to n - 1; an increment on top of it adds numbers from n on, fewer than its rows.
    """
    url: str = page_urls(np.array([page]))[0].as_py()
    return url


def page_urls(pages: np.ndarray) -> pa.StringArray:
    """`page_url` of each page."""
    bits = _mixed(pages)
    shape = _choice(bits, 8, len(SHAPES))
    item = pages.astype(np.uint64) * np.uint64(2_654_435_761) % np.uint64(2**32)  # odd factor: one to one
    heads = [f"https://{host}{kind.folder}" for host in HOSTS for kind in SHAPES]
    parts = [
        pa.array(heads).take(pa.array(_merchants(pages) * len(SHAPES) + shape)),
        _of_shape([kind.words for kind in SHAPES], shape, _choice(bits, 16, 2**12)),
        _of_shape([[kind.joint] for kind in SHAPES], shape, shape),
        _of_shape([kind.words for kind in SHAPES], shape, _choice(bits, 28, 2**12)),
        _of_shape([[kind.lead] for kind in SHAPES], shape, shape),
        pa.array(item).cast(pa.string()),
        _of_shape([kind.tails for kind in SHAPES], shape, _choice(bits, 40, 2**12)),
    ]
    return pc.binary_join_element_wise(*parts, "")


def _of_shape(lists: list[list[str]], shape: np.ndarray, choice: np.ndarray) -> pa.StringArray:
    """For each row an element of its shape's list, `choice` taken modulo the list's length."""
    sizes = np.array([len(words) for words in lists])
    first = np.cumsum(sizes) - sizes
    flat = pa.array([word for words in lists for word in words])
    return flat.take(pa.array(first[shape] + choice % sizes[shape]))


def _merchants(pages: np.ndarray) -> np.ndarray:
    """The merchant of each page, counted from 0."""
    return _choice(_mixed(pages), 52, len(HOSTS))


def _choice(bits: np.ndarray, shift: int, count: int) -> np.ndarray:
    return ((bits >> np.uint64(shift)) & np.uint64(0xFFF)).astype(np.int64) % count


def _mixed(pages: np.ndarray) -> np.ndarray:
    """64 well-mixed bits for each page number (two rounds of multiply and fold, modulo 2**64)."""
    bits = (pages.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    return bits ^ (bits >> np.uint64(32))


# HTML

FREQUENT_WORDS = _words(
    "the of and to in a is for with on this that it as by from are be at you or your our we can not an "
    "has more all one its will made when each which also into than they over only most every after both "
    "under where through while before two ten 12 30 100 2026"
)
STEMS = _words(
    "light stone water river paper metal wood grain colour shape handle surface corner weight season "
    "morning table garden window bottle thread fabric finish polish order parcel return repair measure "
    "detail pattern border button pocket collar sleeve wheel spring hinge drawer basket candle mirror "
    "carpet pillow ribbon kettle ladle saucer travel summer winter market harbour village studio craft "
    "maker owner guest family kitchen bedroom cellar attic"
)
ENDINGS = ["", *_words("s ed ing er ers ly ful less like ish proof ness wise ward bound able work -free")]
OPEN = '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>'
CANONICAL = '</title>\n<meta name="viewport" content="width=device-width">\n<link rel="canonical" href="'
HEADER = """">
<link rel="stylesheet" href="https://{host}/static/site.css">
<script defer src="https://{host}/static/basket.js"></script>
</head>
<body class="product">
<header><a class="logo" href="https://{host}/">{host}</a>
<nav><ul><li><a href="/home/">Home and garden</a></li><li><a href="/p/">All products</a></li>
<li><a href="/shop/">Shop by room</a></li><li><a href="/en/outlet/">Outlet</a></li></ul></nav></header>
<main>
<h1>"""
BODY = '</h1>\n<div class="description">\n<p>'
FOOTER = """</p>
</div>
</main>
<footer><p>Sold and sent by {host}. Prices include tax; parcels leave within two working days.</p>
<form action="https://{host}/search/item"><input name="q" placeholder="Search this shop"></form></footer>
</body>
</html>
"""
FRAME_TOKENS = 11  # before a page's text: OPEN, title (3), CANONICAL, URL, HEADER, title (3), BODY


class Tokens(NamedTuple):
    """All pieces of text of pages, and the place in `texts` where each kind begins."""

    texts: pa.StringArray
    words: int  # plain words, most frequent first: "word "
    comma: int  # "word, "; these four kinds hold every word
    capital: int  # "Word "
    end: int  # "word. "
    breaks: int  # a new paragraph below a heading
    paragraph: int  # a new paragraph
    parts: int  # OPEN, CANONICAL, BODY
    header: int  # one a merchant
    footer: int  # one a merchant


@cache
def _tokens() -> Tokens:
    random = np.random.default_rng(0)
    rare = [stem + ending for stem in STEMS for ending in ENDINGS]
    words = FREQUENT_WORDS + [rare[place] for place in random.permutation(len(rare))]
    headings = [" ".join(words[place] for place in random.integers(0, len(words), 3)) for _ in range(500)]
    kinds = [
        [word + " " for word in words],
        [word + ", " for word in words],
        [word.capitalize() + " " for word in words],
        [word + ". " for word in words],
        [f"</p>\n<h2>{heading.capitalize()}</h2>\n<p>" for heading in headings],
        ["</p>\n<p>"],
        [OPEN, CANONICAL, BODY],
        [HEADER.format(host=host) for host in HOSTS],
        [FOOTER.format(host=host) for host in HOSTS],
    ]
    first = np.cumsum([0, *map(len, kinds)]).tolist()
    return Tokens(pa.array([text for kind in kinds for text in kind]), len(words), *first[1:-1])


@cache
def _zipf() -> np.ndarray:
    """Word numbers for 16 random bits: the word of rank r comes up in proportion to 1 / (r + 2)."""
    weights = np.cumsum(1 / (np.arange(_tokens().words) + 2))
    words: np.ndarray = np.searchsorted(weights, (np.arange(2**16) + 0.5) / 2**16 * weights[-1])
    return words.astype(np.int32)


def html_pages(random: np.random.Generator, urls: pa.StringArray, merchants: np.ndarray) -> pa.StringArray:
    """One HTML document a URL, 1,000 to 9,216 bytes long, most of it text."""
    tokens = _tokens()
    sizes = random.integers(*BODY_TOKENS, len(urls)) + FRAME_TOKENS + 1
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    first, last = bounds[:-1], bounds[1:] - 1
    text = _prose(random, bounds[-1])
    titles = tokens.capital + _zipf()[random.integers(0, 2**16, (3, len(urls)))]
    url = len(tokens.texts) + np.arange(len(urls))
    part = [np.full(len(urls), tokens.parts + place) for place in range(3)]
    frame = [part[0], *titles, part[1], url, tokens.header + merchants, *titles, part[2]]
    text[first + np.arange(FRAME_TOKENS)[:, None]] = frame
    for place, kind in ((first + FRAME_TOKENS, tokens.capital), (last - 1, tokens.end)):
        text[place] = kind + _zipf()[random.integers(0, 2**16, len(urls))]
    text[last] = tokens.footer + merchants
    joined = pa.concat_arrays([tokens.texts, urls]).take(pa.array(text))
    _, offsets, content = joined.buffers()
    page_offsets = np.frombuffer(offsets, np.int32)[bounds]
    return pa.StringArray.from_buffers(len(urls), pa.py_buffer(page_offsets), content)


def _prose(random: np.random.Generator, count: int) -> np.ndarray:
    """`count` tokens of sentences of 5 to 19 words, with commas, paragraphs and headings between them."""
    tokens = _tokens()
    text = _zipf()[random.integers(0, 2**16, count, dtype=np.uint16)]
    starts = np.cumsum(random.integers(5, 20, count // 11 + 10))
    starts = starts[starts < count - 3]
    breaks = random.random(starts.size) < 0.2
    text[starts - 1] += tokens.end
    text[starts + breaks] += tokens.capital
    text[starts[random.random(starts.size) < 0.4] + 2] += tokens.comma
    heading = tokens.breaks + random.integers(0, 3 * (tokens.paragraph - tokens.breaks), breaks.sum())
    text[starts[breaks]] = np.minimum(heading, tokens.paragraph)
    return text
