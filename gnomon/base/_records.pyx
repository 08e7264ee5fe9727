# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled loops of `gnomon.base.kernel` over Avro records. `records_python.py` has the same functions in Python, and
is the reference."""

from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

VERSION = 4  # as `records_python.VERSION`

cdef int64_t NO_LINK = -(<int64_t> 1 << 62) * 2  # no link: the least number

cdef enum:
    LONG = 0
    BYTES = 1
    BOOLEAN = 2
    FLOAT = 3
    DOUBLE = 4
    NUMBER = 5
    LINK = 6
    TEXT = 7
    INT = 8
    FIELD = 3  # bytes of a field in a plan
    NONE = 255
    SOUND = 0
    ENDED = 1
    OVERLONG = 2
    UNKNOWN = 3
    NEGATIVE = 4
    OUTSIDE = 5
    LONGEST = 10  # bytes of a varint of 64 bits


cdef inline int _varint(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, uint64_t* number) noexcept nogil:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if at[0] >= end:
            return ENDED
        byte = data[at[0]]
        at[0] += 1
        if shift == 63 and byte > 1:
            return OVERLONG
        found |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = found
            return SOUND
        shift += 7


cdef inline int64_t _signed(uint64_t number) noexcept nogil:
    return <int64_t> (number >> 1) ^ -<int64_t> (number & 1)


cdef object _refuse(int state):
    if state == ENDED:
        raise IndexError("the bytes end inside a record")
    if state == OUTSIDE:
        raise ValueError("a link to no block")
    if state == UNKNOWN:
        raise ValueError("an unknown branch of a union")
    raise ValueError("a negative length" if state == NEGATIVE else "a varint of more than 64 bits")


cdef inline object _value(int kind, const uint8_t* data, Py_ssize_t begin, Py_ssize_t at, uint64_t number):
    cdef float single
    cdef double double_
    if kind == LONG or kind == LINK:
        return _signed(number)
    if kind == TEXT:
        return PyUnicode_DecodeUTF8(<const char*> data + begin, at - begin, NULL)
    if kind == INT:
        if not -(<int64_t> 1 << 31) <= _signed(number) < <int64_t> 1 << 31:  # Avro's int is a long on disk
            raise ValueError(f"{_signed(number)} exceeds 32 bits")
        return _signed(number)
    if kind == BYTES:
        return PyBytes_FromStringAndSize(<const char*> data + begin, at - begin)
    if kind == BOOLEAN:
        return data[at - 1] != 0
    if kind == FLOAT:
        memcpy(&single, data + at - 4, 4)
        return <double> single
    if kind == DOUBLE:
        memcpy(&double_, data + at - 8, 8)
        return double_
    return int.from_bytes(PyBytes_FromStringAndSize(<const char*> data + begin, at - begin), "big", signed=True)


def locate(bytes records not None, Py_ssize_t count, Py_ssize_t at, bint is_all, bytes plan not None, int columns):
    """See `records_python.locate`."""
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(records)
    cdef const uint8_t* field = <const uint8_t*> PyBytes_AS_STRING(plan)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(records), begin = 0, i, place, size = PyBytes_GET_SIZE(plan), width
    cdef Py_ssize_t fields = size / FIELD
    cdef uint64_t number = 0
    cdef int state, kind, out, none
    if at < 0 or size % FIELD:
        raise ValueError(f"records from {at} on, by a plan of {size} bytes")
    for place in range(fields):
        if field[FIELD * place + 2] != NONE and field[FIELD * place + 2] >= columns:
            raise ValueError(f"column {field[FIELD * place + 2]} of {columns}")
    cdef list starts = [at], found = [[] for _ in range(columns)], links = [], column
    for i in range(count):
        for place in range(fields):
            kind, none, out = field[FIELD * place], field[FIELD * place + 1], field[FIELD * place + 2]
            column = links if kind == LINK else <list> found[out] if out != NONE else None
            if none != NONE:
                if at >= end:
                    _refuse(ENDED)
                begin = data[at]
                at += 1
                if begin == 2 * none:
                    if column is not None:
                        column.append(None)
                    continue
                if begin != 2 - 2 * none:
                    _refuse(UNKNOWN)
            if kind == LONG and column is None:
                while True:
                    if at >= end:
                        _refuse(ENDED)
                    at += 1
                    if data[at - 1] < 0x80:
                        break
                continue
            if kind == BOOLEAN or kind == FLOAT or kind == DOUBLE:
                width = 1 if kind == BOOLEAN else 4 if kind == FLOAT else 8
                if end - at < width:
                    _refuse(ENDED)
                at += width
            else:
                state = _varint(data, &at, end, &number)
                if state != SOUND:
                    _refuse(state)
                begin = at
                if kind == BYTES or kind == NUMBER or kind == TEXT:
                    if number & 1:
                        _refuse(NEGATIVE)
                    if (number >> 1) > <uint64_t> (end - at):
                        _refuse(ENDED)
                    at += <Py_ssize_t> (number >> 1)
            if column is not None:
                column.append(_value(kind, data, begin, at, number))
        starts.append(at)
    if is_all and at != end:
        raise ValueError("bytes that belong to no record")
    return starts, found, links


def block_frames(const uint8_t[::1] data, int64_t begin, bytes sync not None, list offsets not None, Py_ssize_t first,
                 int64_t most_records, int64_t most_bytes):
    """See `records_python.block_frames`."""
    cdef list found = []
    cdef Py_ssize_t i, at, size = data.shape[0], marker = PyBytes_GET_SIZE(sync)
    cdef int64_t offset
    cdef uint64_t count = 0, length = 0
    for i in range(first, len(offsets)):
        offset = offsets[i]
        if not begin <= offset < begin + size:
            break
        at = offset - begin
        if _varint(&data[0], &at, size, &count) != SOUND or _varint(&data[0], &at, size, &length) != SOUND:
            break
        if count & 1 or not 1 <= count >> 1 <= <uint64_t> most_records or length & 1 \
                or not 1 <= length >> 1 <= <uint64_t> most_bytes or size - at - marker < <int64_t> (length >> 1):
            break
        length >>= 1
        if memcmp(&data[at + <Py_ssize_t> length], PyBytes_AS_STRING(sync), marker):
            break
        found.append((<int64_t> (count >> 1), at, at + <int64_t> length))
    return found


DEF MOST = 8  # key columns that `RecordKeys` compares


cdef struct Part:
    int is_null
    int64_t value  # of a number
    double real
    const uint8_t* data
    Py_ssize_t length  # of bytes
    int beyond  # -1 or 1 where the number is beyond 64 bits


cdef inline int _sign(int64_t difference) noexcept nogil:
    return (difference > 0) - (difference < 0)


cdef int _bytes_order(const uint8_t* one, Py_ssize_t length, const uint8_t* other, Py_ssize_t others) noexcept nogil:
    cdef int found = memcmp(one, other, min(length, others))
    return _sign(found) if found else _sign(length - others)


cdef int _number_order(const uint8_t* one, Py_ssize_t length, const uint8_t* other, Py_ssize_t others) noexcept nogil:
    """Compare two big-endian two's complements of any length."""
    cdef uint8_t fill = 0xFF if length and one[0] > 0x7F else 0
    cdef uint8_t other_fill = 0xFF if others and other[0] > 0x7F else 0
    if fill != other_fill:
        return -1 if fill else 1
    while length and one[0] == fill:
        one += 1
        length -= 1
    while others and other[0] == fill:
        other += 1
        others -= 1
    if length != others:
        return _sign(others - length) if fill else _sign(length - others)
    return _sign(memcmp(one, other, length))


cdef inline int _real_order(double one, double other) noexcept nogil:
    """Compare as Spark does: all NaN are equal, and greatest."""
    if one != one or other != other:
        return (one != one) - (other != other)
    return (one > other) - (one < other)


cdef inline int _part_order(int kind, const Part* one, const Part* other) noexcept nogil:
    if one.is_null or other.is_null:
        return other.is_null - one.is_null
    if kind == BYTES or kind == TEXT:
        return _bytes_order(one.data, one.length, other.data, other.length)
    if kind == NUMBER:
        return _number_order(one.data, one.length, other.data, other.length)
    if kind == FLOAT or kind == DOUBLE:
        return _real_order(one.real, other.real)
    if one.beyond or other.beyond:
        return one.beyond - other.beyond
    return (one.value > other.value) - (one.value < other.value)


cdef inline int _key_order(const int* kinds, int columns, const Part* one, const Part* other) noexcept nogil:
    cdef int column, order
    for column in range(columns):
        order = _part_order(kinds[column], &one[column], &other[column])
        if order:
            return order
    return 0


cdef bint _is_utf8(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, more, i
    cdef uint64_t eight
    cdef uint8_t first, low, high
    while at < length:
        if length - at >= 8:
            memcpy(&eight, data + at, 8)
            if not eight & <uint64_t> 0x8080808080808080:
                at += 8
                continue
        first, low, high = data[at], 0x80, 0xBF
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if first == 0xE0 or first == 0xF0:  # no longer form than needed
            low = 0xA0 if first == 0xE0 else 0x90
        if first == 0xED or first == 0xF4:  # no surrogate, and none beyond U+10FFFF
            high = 0x9F if first == 0xED else 0x8F
        if length - at < more or not low <= data[at] <= high:
            return False
        for i in range(1, more):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more
    return True


cdef inline bint _read_part(const uint8_t* field, const uint8_t* data, Py_ssize_t* at, Py_ssize_t end,
                            Part* part) noexcept nogil:
    """Read a field of a leaf, with the checks of all readers. False where the bytes may be damaged."""
    cdef int kind = field[0]
    cdef uint64_t number = 0
    cdef float single
    if field[1] != NONE:
        if at[0] >= end:
            return False
        at[0] += 1
        part.is_null = data[at[0] - 1] == 2 * field[1]
        if part.is_null:
            return True
        if kind == LINK or data[at[0] - 1] != 2 - 2 * field[1]:
            return False
    if kind == BOOLEAN or kind == FLOAT or kind == DOUBLE:
        if end - at[0] < (1 if kind == BOOLEAN else 4 if kind == FLOAT else 8):
            return False
        if kind == BOOLEAN:
            part.value = data[at[0]]
            at[0] += 1
            return part.value <= 1
        if kind == FLOAT:
            memcpy(&single, data + at[0], 4)
            part.real = single
        else:
            memcpy(&part.real, data + at[0], 8)
        at[0] += 4 if kind == FLOAT else 8
        return True
    if _varint(data, at, end, &number) != SOUND:
        return False
    if kind == BYTES or kind == NUMBER or kind == TEXT:
        if number & 1 or (number >> 1) > <uint64_t> (end - at[0]):
            return False
        part.data = data + at[0]
        part.length = <Py_ssize_t> (number >> 1)
        at[0] += part.length
        return kind != TEXT or _is_utf8(part.data, part.length)
    part.value = _signed(number)
    return kind == LONG or -(<int64_t> 1 << 31) <= part.value < <int64_t> 1 << 31


cdef struct Hit:
    int64_t key  # index of the wanted key
    const uint8_t* data
    Py_ssize_t length


cdef struct HitList:
    Hit* hits
    Py_ssize_t count
    Py_ssize_t room
    Py_ssize_t bytes


cdef inline bint _add_hit(HitList* found, int64_t key, const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """False where memory ran out."""
    cdef Hit* more
    if found.count == found.room:
        more = <Hit*> realloc(found.hits, (2 * found.room + 1024) * sizeof(Hit))
        if more == NULL:
            return False
        found.hits, found.room = more, 2 * found.room + 1024
    found.hits[found.count] = Hit(key, data, length)
    found.count += 1
    found.bytes += length
    return True


cdef class RecordKeys:
    """The records of a node: where each begins, its key columns and its link. `btree.node.ListedKeys` is the reference.

    It points into the bytes of the node, and makes no object of a key."""

    cdef readonly bytes records
    cdef const uint8_t* _data
    cdef bint _is_proved  # by `match`, with the checks of all readers
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t cache_bytes
    cdef int _columns
    cdef int _kinds[MOST]
    cdef int64_t* _starts  # of each record, and the end of the last
    cdef int64_t* _links
    cdef int64_t* _values  # of each key column: numbers, or where the bytes begin
    cdef int64_t* _lengths  # of each key column: -1 for a null

    def __init__(self, bytes records not None, Py_ssize_t count, bytes plan not None, int columns):
        """`plan` has `columns` key columns, at most MOST. Errors as `records_python.locate` raises them."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(records)
        if columns > MOST or not 0 <= count <= size:
            raise ValueError(f"{count} records in {size} bytes")
        self.records, self._columns, self.count = records, columns, count
        self._data = <const uint8_t*> PyBytes_AS_STRING(records)
        self.cache_bytes = size + 8 * (count + 1 + count * (1 + 2 * columns))
        if self._starts != NULL:
            raise ValueError("made twice")
        self._starts = <int64_t*> malloc(8 * (count + 1 + count * (1 + 2 * columns)))
        if self._starts == NULL:
            raise MemoryError
        self._links = self._starts + count + 1
        self._values = self._links + count
        self._lengths = self._values + count * columns
        self._read(plan)

    def __dealloc__(self):
        free(self._starts)

    cdef _read(self, bytes plan):
        cdef const uint8_t* field = <const uint8_t*> PyBytes_AS_STRING(plan)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(self.records), fields = PyBytes_GET_SIZE(plan) / FIELD
        cdef Py_ssize_t at = 0, record, place
        cdef int state = SOUND
        for place in range(fields):
            if field[FIELD * place + 2] != NONE:
                if field[FIELD * place + 2] >= self._columns:
                    raise ValueError(f"column {field[FIELD * place + 2]} of {self._columns}")
                self._kinds[field[FIELD * place + 2]] = field[FIELD * place]
        for record in range(self.count):
            self._starts[record] = at
            for place in range(fields):
                state = self._read_field(field + FIELD * place, record, &at, end)
                if state != SOUND:
                    _refuse(state)
        self._starts[self.count] = at
        if at != end:
            raise ValueError("bytes that belong to no record")

    cdef int _read_field(self, const uint8_t* field, Py_ssize_t record, Py_ssize_t* at, Py_ssize_t end) noexcept nogil:
        cdef int kind = field[0]
        cdef uint64_t number = 0
        cdef Py_ssize_t width
        cdef int state = SOUND
        cdef float single
        cdef int64_t length = 0
        cdef int64_t* value = NULL
        cdef int64_t unused
        value = self._links + record if kind == LINK else &unused
        if field[2] != NONE:
            value = self._values + field[2] * self.count + record
        if field[1] != NONE:
            if at[0] >= end:
                return ENDED
            at[0] += 1
            if self._data[at[0] - 1] == 2 * field[1]:
                value[0] = NO_LINK
                if field[2] != NONE:
                    self._lengths[field[2] * self.count + record] = -1
                return SOUND
            if self._data[at[0] - 1] != 2 - 2 * field[1]:
                return UNKNOWN
        if kind == BOOLEAN or kind == FLOAT or kind == DOUBLE:
            width = 1 if kind == BOOLEAN else 4 if kind == FLOAT else 8
            if end - at[0] < width:
                return ENDED
            if kind == BOOLEAN:
                value[0] = self._data[at[0]] != 0
            elif kind == FLOAT:
                memcpy(&single, self._data + at[0], 4)
                (<double*> value)[0] = single
            else:
                memcpy(value, self._data + at[0], 8)
            at[0] += width
        elif kind == LONG and field[2] == NONE:
            while True:
                if at[0] >= end:
                    return ENDED
                at[0] += 1
                if self._data[at[0] - 1] < 0x80:
                    break
        else:
            state = _varint(self._data, at, end, &number)
            if state != SOUND:
                return state
            if kind == BYTES or kind == NUMBER:
                if number & 1:
                    return NEGATIVE
                if (number >> 1) > <uint64_t> (end - at[0]):
                    return ENDED
                value[0] = at[0]
                length = <int64_t> (number >> 1)
                at[0] += <Py_ssize_t> length
            else:
                value[0] = _signed(number)
                if kind == LINK and value[0] == NO_LINK:
                    return OUTSIDE
        if field[2] != NONE:
            self._lengths[field[2] * self.count + record] = length
        return SOUND

    cdef Part _part(self, Py_ssize_t record, int column) noexcept nogil:
        cdef Part part = Part(0, 0, 0.0, NULL, 0, 0)
        cdef Py_ssize_t place = column * self.count + record
        part.length = <Py_ssize_t> self._lengths[place]
        part.is_null = part.length < 0
        part.value = self._values[place]
        if not part.is_null and (self._kinds[column] == BYTES or self._kinds[column] == NUMBER):
            part.data = self._data + part.value
        memcpy(&part.real, &part.value, 8)
        return part

    cdef int _compare(self, Py_ssize_t record, const Part* wanted) noexcept nogil:
        cdef int column, order
        cdef Part own
        for column in range(self._columns):
            own = self._part(record, column)
            order = _part_order(self._kinds[column], &own, &wanted[column])
            if order:
                return order
        return 0

    cdef inline int _compare_records(self, Py_ssize_t record, RecordKeys other, Py_ssize_t others) noexcept nogil:
        cdef Part parts[MOST]
        other._key_at(others, parts)
        return self._compare(record, parts)

    def __len__(self):
        return self.count

    def start(self, Py_ssize_t record):
        """Where a record begins; for the number of records, where the last ends."""
        if not 0 <= record <= self.count:
            raise IndexError(record)
        return self._starts[record]

    def link(self, Py_ssize_t record):
        """The link of a record, or None."""
        if not 0 <= record < self.count:
            raise IndexError(record)
        return None if self._links[record] == NO_LINK else self._links[record]

    def next_link(self, Py_ssize_t begin):
        """One past the first record with a link from `begin` on, or past the last record."""
        while begin < self.count:
            begin += 1
            if self._links[begin - 1] != NO_LINK:
                return begin
        return self.count

    def is_sorted(self):
        """Whether the keys do not decrease."""
        cdef Py_ssize_t record
        for record in range(1, self.count):
            if self._compare_records(record - 1, self, record) > 0:
                return False
        return True

    def is_ordered(self, Py_ssize_t record, RecordKeys other not None, Py_ssize_t others):
        """Whether the key of a record is at most that of another node's record."""
        if not (0 <= record < self.count and 0 <= others < other.count):
            raise IndexError(record)
        return self._compare_records(record, other, others) <= 0

    def find(self, tuple wanted not None):
        """The records with a key (in stored form; text may be its UTF-8 bytes): the first, and one past the last."""
        cdef Part parts[MOST]
        cdef Py_ssize_t first = 0, last = 0
        held = self._parts(wanted, parts)
        self._find(parts, &first, &last)
        return first, last

    cdef list _parts(self, tuple wanted, Part* parts):
        """Fill the parts of a key. Returns the objects that their bytes belong to."""
        cdef int column
        if len(wanted) != self._columns:
            raise ValueError(f"{len(wanted)} columns of a key")
        return [_wanted(self._kinds[column], wanted[column], &parts[column]) for column in range(self._columns)]

    cdef void _find(self, const Part* parts, Py_ssize_t* first, Py_ssize_t* last) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if self._compare(middle, parts) < 0:
                low = middle + 1
            else:
                high = middle
        first[0], high = low, self.count
        if low < high and self._compare(low, parts):  # most keys are not in a node, or once
            high = low
        while low < high:
            middle = (low + high) >> 1
            if self._compare(middle, parts) <= 0:
                low = middle + 1
            else:
                high = middle
        last[0] = low

    def places(self, RecordKeys wanted not None, int64_t[::1] less not None, int64_t[::1] upto not None):
        """For each record, the number of wanted keys that are less, and of those that are not greater. Both are
        sorted, and the wanted ones are distinct."""
        cdef Part parts[MOST]
        cdef Py_ssize_t key, first = 0, last = 0, done = 0, past = 0
        if wanted._columns != self._columns or less.shape[0] != self.count or upto.shape[0] != self.count:
            raise ValueError(f"{self.count} records of {self._columns} columns")
        with nogil:
            for key in range(wanted.count):
                wanted._key_at(key, parts)
                self._seek(parts, &first)
                last = first
                while last < self.count and self._compare(last, parts) == 0:
                    last += 1
                while done < first:
                    upto[done] = key
                    done += 1
                while past < last:
                    less[past] = key
                    past += 1
            for done in range(done, self.count):
                upto[done] = wanted.count
            for past in range(past, self.count):
                less[past] = wanted.count

    cdef void _seek(self, const Part* parts, Py_ssize_t* first) noexcept nogil:
        """Advance to the first record whose key is not less."""
        cdef Py_ssize_t low = first[0], step = 1, high, middle
        while low + step <= self.count and self._compare(low + step - 1, parts) < 0:
            low += step
            step *= 2
        high = min(low + step - 1, self.count)
        while low < high:
            middle = (low + high) >> 1
            if self._compare(middle, parts) < 0:
                low = middle + 1
            else:
                high = middle
        first[0] = low

    def match(self, list leaves not None, const int64_t[::1] counts, bytes plan not None,
              const int64_t[::1] begins, const int64_t[::1] ends, RecordKeys fences not None,
              const int64_t[::1] below, bint has_whole_runs, RecordKeys limits, int64_t[::1] hits not None):
        """The records of some leaves that have wanted keys, which these are: sorted and distinct. Returns the index of
        the key of each record, as the bytes of 64-bit integers, and the bytes of the records. `hits` receives the
        number of such records in each leaf. None where a leaf may be damaged: `btree.batch` then decodes all records.

        A leaf is given by the bytes of its records, or, sorted, by its `RecordKeys`, which another match need not read
        again. Leaf i has `counts[i]` records, which `plan` reads, and may have the keys from `begins[i]` to before `ends[i]`.
        Each of its keys lies from record `below[i]` of `fences` (-1: an open end) to the one after it, and, if there
        are `limits`, in each column between the first and the second of these two records."""
        cdef Py_ssize_t size = len(leaves), fields = PyBytes_GET_SIZE(plan) / FIELD, i, place = 0
        cdef RecordKeys leaf
        cdef HitList found = HitList(NULL, 0, 0, 0)
        cdef int kinds[MOST]
        cdef int state = 1
        cdef const uint8_t* field = <const uint8_t*> PyBytes_AS_STRING(plan)
        cdef int64_t* keys
        if not size == counts.shape[0] == begins.shape[0] == ends.shape[0] == below.shape[0] == hits.shape[0]:
            raise ValueError(f"{size} leaves")
        if fences._columns != self._columns or (limits is not None and
                                                (limits._columns != self._columns or limits.count != 2)):
            raise ValueError(f"keys of {self._columns} columns")
        for i in range(self._columns):
            kinds[i] = NONE
        for i in range(fields):
            place = field[FIELD * i + 2]
            if place != NONE:
                if place >= self._columns or not self._is_of_kind(<int> place, field[FIELD * i]):
                    raise ValueError(f"column {place} of kind {field[FIELD * i]}")
                kinds[place] = field[FIELD * i]
        for i in range(self._columns):
            if kinds[i] == NONE:
                raise ValueError(f"a plan without column {i}")
        for i in range(size):
            if not (0 <= begins[i] <= ends[i] <= self.count and -1 <= below[i] < fences.count and counts[i] > 0):
                raise ValueError(f"leaf {i}")
        try:
            for i in range(size):
                place = found.count
                one = leaves[i]
                if isinstance(one, RecordKeys):
                    leaf = <RecordKeys> one
                    if leaf.count != counts[i] or leaf._columns != self._columns:
                        raise ValueError(f"leaf {i}")
                    one = leaf.records
                    if leaf._is_proved:
                        state = self._match_proved(leaf, begins[i], ends[i], fences, below[i], has_whole_runs, &found)
                        hits[i] = found.count - place
                        if state != 1:
                            break
                        continue
                else:
                    leaf = None
                state = self._match_leaf(<const uint8_t*> PyBytes_AS_STRING(<bytes?> one), PyBytes_GET_SIZE(one),
                                         counts[i], field, fields, kinds, begins[i], ends[i], fences, below[i],
                                         has_whole_runs, limits, &found)
                hits[i] = found.count - place
                if state != 1:
                    break
                if leaf is not None:
                    leaf._is_proved = True
            if state < 0:
                raise MemoryError
            if state == 0:
                return None
            keys_bytes = PyBytes_FromStringAndSize(NULL, found.count * 8)
            records = PyBytes_FromStringAndSize(NULL, found.bytes)
            keys = <int64_t*> PyBytes_AS_STRING(keys_bytes)
            place = 0
            for i in range(found.count):
                keys[i] = found.hits[i].key
                memcpy(PyBytes_AS_STRING(<bytes> records) + place, found.hits[i].data, found.hits[i].length)
                place += found.hits[i].length
            return keys_bytes, records
        finally:
            free(found.hits)

    cdef int _match_proved(self, RecordKeys leaf, int64_t key, int64_t stop, RecordKeys fences, Py_ssize_t fence,
                           bint has_whole_runs, HitList* found) noexcept nogil:
        """As `_match_leaf`, for a leaf that was read before."""
        cdef Part parts[MOST]
        cdef Py_ssize_t record = 0
        if fence >= 0 and leaf._compare_records(0, fences, fence) < 0:
            return 0
        if fence + 1 < fences.count and \
                leaf._compare_records(leaf.count - 1, fences, fence + 1) > (-1 if has_whole_runs else 0):
            return 0
        while key < stop and record < leaf.count:
            self._key_at(key, parts)
            leaf._seek(parts, &record)
            while record < leaf.count and leaf._compare(record, parts) == 0:
                if not _add_hit(found, key, leaf._data + leaf._starts[record],
                                leaf._starts[record + 1] - leaf._starts[record]):
                    return -1
                record += 1
            key += 1
        return 1

    cdef inline void _key_at(self, Py_ssize_t record, Part* parts) noexcept nogil:
        cdef int column
        for column in range(self._columns):
            parts[column] = self._part(record, column)

    cdef bint _is_of_kind(self, int column, int kind) noexcept nogil:
        """Whether values of a kind compare with a column of these keys."""
        cdef int own = self._kinds[column]
        if kind == TEXT:
            kind = BYTES
        if kind == INT:
            kind = LONG
        return own == kind

    cdef int _match_leaf(self, const uint8_t* data, Py_ssize_t end, int64_t count, const uint8_t* plan,
                         Py_ssize_t fields, const int* kinds, int64_t key, int64_t stop, RecordKeys fences,
                         Py_ssize_t fence, bint has_whole_runs, RecordKeys limits, HitList* found) noexcept nogil:
        """Add the hits of a leaf. 0 where it may be damaged, -1 where memory ran out."""
        cdef Part parts[3 * MOST]  # of the record, the one before it, and the wanted key
        cdef Part unused
        cdef Part low, high
        cdef Part* own = parts
        cdef Part* before = parts + MOST
        cdef Part* wanted = parts + 2 * MOST
        cdef const uint8_t* field
        cdef Py_ssize_t at = 0, start, place
        cdef int64_t record
        cdef int column, order, columns = self._columns
        for column in range(columns):
            parts[column] = parts[MOST + column] = Part(0, 0, 0.0, NULL, 0, 0)
        if key < stop:
            self._key_at(key, wanted)
        for record in range(count):
            start = at
            for place in range(fields):
                field = plan + FIELD * place
                if not _read_part(field, data, &at, end, &unused if field[2] == NONE else own + field[2]):
                    return 0
            if limits is not None:
                for column in range(columns):
                    low, high = limits._part(0, column), limits._part(1, column)
                    if not (low.is_null or own[column].is_null) and (
                            _part_order(kinds[column], own + column, &low) < 0
                            or _part_order(kinds[column], own + column, &high) > 0):
                        return 0
            if record and _key_order(kinds, columns, before, own) > 0:
                return 0
            if record == 0 and fence >= 0 and fences._compare(fence, own) > 0:
                return 0
            while key < stop:
                order = _key_order(kinds, columns, own, wanted)
                if order < 0:
                    break
                if order == 0:
                    if not _add_hit(found, key, data + start, at - start):
                        return -1
                    break
                key += 1
                if key < stop:
                    self._key_at(key, wanted)
            own, before = before, own
        if at != end:
            return 0
        if fence + 1 < fences.count and fences._compare(fence + 1, before) < (1 if has_whole_runs else 0):
            return 0
        return 1

    def descend(self, tuple wanted not None, root, dict kept not None, block_of, stats, int64_t size,
                bint has_whole_runs, int64_t most_bytes, Py_ssize_t most):
        """From this node, that of the block `root`, down the path to a key, by the checks of `Traversal.child`.

        A block comes from `kept`, by its offset, or from `block_of(offset, level, length)` if it is not there or has
        more than `most` records. Returns whether this is the whole answer; the last block; the first of its records
        with the key, and one past the last; and its level, the memory of the path, and the block and the record of its
        bound, as in `traversal.Place`. The path ends before a child that a check refuses, and where a child may have
        more records with the key: it is then not the whole answer."""
        cdef Part parts[MOST]
        cdef RecordKeys keys = self, child, bound_keys = None, child_bound
        cdef Py_ssize_t first = 0, last = 0, record, bound = 0, next_bound
        cdef int64_t link, at = 0, bytes_held = self.cache_bytes
        cdef int level = 1
        cdef bint is_whole = True
        owners = self._parts(wanted, parts)
        block, bound_block = root, None
        while True:
            keys._find(parts, &first, &last)
            record = first - 1
            if first < last or record < 0 or keys._links[record] == NO_LINK:
                break
            is_whole = False
            link = keys._links[record]
            if not 0 < link <= size - max(<int64_t> block.end, at + 1):  # so that every path ends
                break
            below = kept.get(size - link)
            if below is None or (<RecordKeys?> below.node.keys).count > most:
                length = None
                if first < keys.count and keys._links[first] != NO_LINK:
                    length = link - <object> keys._links[first]
                below = block_of(size - link, level, length)
            child = <RecordKeys?> below.node.keys
            child_bound, next_bound = bound_keys, bound
            if first < keys.count:
                child_bound, next_bound = keys, first
            if child.count < 1 or child._columns != self._columns or keys._compare_records(record, child, 0) > 0:
                break
            if child_bound is not None and \
                    child._compare_records(child.count - 1, child_bound, next_bound) >= (0 if has_whole_runs else 1):
                break
            bytes_held += child.cache_bytes
            if bytes_held > most_bytes:
                bytes_held -= child.cache_bytes
                break
            if first < keys.count:
                bound_block = block
            bound_keys, bound = child_bound, next_bound
            keys, block, at, level, is_whole = child, below, size - link, level + 1, True
            stats.nodes += 1
        if first < last:
            for record in range(first if has_whole_runs else max(first - 1, 0), last):
                is_whole = is_whole and keys._links[record] == NO_LINK
        return is_whole, block, first, last, level, bytes_held, bound_block, bound


cdef object _wanted(int kind, object value, Part* part):
    """Fill a part of a key. Returns the object that its bytes belong to."""
    cdef bytes data
    part[0] = Part(value is None, 0, 0.0, NULL, 0, 0)
    if value is None:
        return None
    if kind == NUMBER:
        value = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    if kind == BYTES or kind == NUMBER:
        data = value.encode() if isinstance(value, str) else value
        part.data = <const uint8_t*> PyBytes_AS_STRING(data)
        part.length = PyBytes_GET_SIZE(data)
        return data
    elif kind == FLOAT or kind == DOUBLE:
        part.real = value
    elif -(1 << 63) <= value < 1 << 63:
        part.value = value
    else:
        part.beyond = 1 if value > 0 else -1
    return None


cdef struct Cells:
    int kind
    int none
    char* values  # NULL: the field is skipped
    int64_t* lengths
    uint8_t* valid


cdef int _put(Cells* cells, const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, Py_ssize_t row) noexcept nogil:
    """Decode a value of a record, and advance. 0 where the bytes are unclear, 2 for a link that is not null."""
    cdef uint64_t number = 0
    cdef int kind = cells.kind
    cdef Py_ssize_t width
    if cells.none != NONE:
        if at[0] >= end:
            return 0
        at[0] += 1
        if data[at[0] - 1] == 2 * cells.none:
            if cells.valid != NULL:
                cells.valid[row] = 0
                if kind == BYTES:
                    (<int64_t*> cells.values)[row] = at[0]
            return 1
        if data[at[0] - 1] != 2 - 2 * cells.none:
            return 0
    if kind == BOOLEAN or kind == FLOAT or kind == DOUBLE:
        width = 1 if kind == BOOLEAN else 4 if kind == FLOAT else 8
        if end - at[0] < width or (kind == BOOLEAN and data[at[0]] > 1):
            return 0
        if cells.values != NULL:
            memcpy(cells.values + row * width, data + at[0], width)
        at[0] += width
        return 1
    if _varint(data, at, end, &number) != SOUND:
        return 0
    if kind == BYTES:
        if number & 1 or (number >> 1) > <uint64_t> (end - at[0]):
            return 0
        if cells.values != NULL:
            (<int64_t*> cells.values)[row] = at[0]
            cells.lengths[row] = <int64_t> (number >> 1)
        at[0] += <Py_ssize_t> (number >> 1)
        return 1
    if cells.values != NULL:
        (<int64_t*> cells.values)[row] = _signed(number)
    return 2 if kind == LINK else 1


cdef char* _memory(object array) except? NULL:
    """Where the bytes of a contiguous array begin; NULL for None. The caller keeps the array."""
    cdef Py_buffer view
    if array is None:
        return NULL
    PyObject_GetBuffer(array, &view, PyBUF_WRITABLE)
    cdef char* begin = <char*> view.buf
    PyBuffer_Release(&view)
    return begin


def record_columns(bytes records not None, const int64_t[::1] counts, const int64_t[::1] sizes, bytes plan not None,
                   list outputs not None, uint8_t[::1] linked):
    """See `records_python.record_columns`."""
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(records)
    cdef const uint8_t* field = <const uint8_t*> PyBytes_AS_STRING(plan)
    cdef Py_ssize_t fields = PyBytes_GET_SIZE(plan) / FIELD, nodes = counts.shape[0]
    cdef Py_ssize_t at = 0, end = 0, row = 0, i, node
    cdef int64_t record
    cdef int state = 1
    if len(outputs) < fields or sizes.shape[0] != nodes or linked.shape[0] != nodes:
        raise ValueError(f"{fields} fields, {nodes} nodes")
    cdef int64_t rows = 0
    for node in range(nodes):
        if sizes[node] < 0 or sizes[node] > PyBytes_GET_SIZE(records) - end:
            return False
        end += sizes[node]
        rows += max(counts[node], 0)
    end = 0
    cdef Cells* cells = <Cells*> malloc(max(fields, 1) * sizeof(Cells))
    if cells == NULL:
        raise MemoryError
    try:
        for i in range(fields):
            cells[i] = Cells(field[FIELD * i], field[FIELD * i + 1], NULL, NULL, NULL)
            if outputs[i] is not None:
                values, lengths, valid = outputs[i]
                if any(one is not None and len(one) < rows for one in (values, lengths, valid)):
                    raise ValueError(f"room for fewer than {rows} values")
                cells[i].values = _memory(values)
                cells[i].lengths = <int64_t*> _memory(lengths)
                cells[i].valid = <uint8_t*> _memory(valid)
        with nogil:
            for node in range(nodes):
                end += sizes[node]
                for record in range(counts[node]):
                    for i in range(fields):
                        state = _put(&cells[i], data, &at, end, row)
                        if state != 1:
                            if state == 0:
                                break
                            linked[node] = 1
                            state = 1
                    if state == 0:
                        break
                    row += 1
                if state == 0 or at != end:
                    state = 0
                    break
    finally:
        free(cells)
    return state == 1
