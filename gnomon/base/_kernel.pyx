# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled loops of `gnomon.base.kernel`. `kernel_python.py` has the same functions in Python, and is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

VERSION = 6  # as `kernel_python.VERSION`

ENDS_IN_RUN = "the bytes end inside a run of packed numbers"

cdef enum:
    FRAGMENT = 65536  # content bytes that a snappy encoder compresses on their own
    SLACK = 16  # bytes that a fast copy may write past its end
    DAMAGED = -1
    MOST_GROWTH = 32  # content bytes that one byte of snappy gives at most: a copy of 64 takes at least 2
    MOST_BITS = 32  # of a number of a hybrid
    MOST_BYTES = 2147483647  # positions are int32


cdef inline Py_ssize_t _unpack(const uint8_t* data, Py_ssize_t at, Py_ssize_t end, uint8_t* out, Py_ssize_t size,
                               int32_t* starts, bint* alone) noexcept nogil:
    """Decode the elements of `data[at:end]` until `size` bytes are in `out`. Return the position after the last element,
    or DAMAGED. `starts[i]` gets the position where fragment i begins. `alone` becomes 0 where a copy reaches before
    its fragment, or an element lies in two. An element that has more than `size` bytes is cut where `starts` is NULL."""
    cdef Py_ssize_t done = 0, length, offset, extra, boundary = 0, begin = 0, i, take
    cdef uint8_t tag
    while at < end and done < size:
        if starts != NULL and done >= boundary:
            if done != boundary:
                alone[0] = 0
            begin = boundary
            starts[boundary / FRAGMENT] = <int32_t> at
            boundary += FRAGMENT
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if at + extra > end:
                    return DAMAGED
                length = 0
                for i in range(extra):
                    length |= <Py_ssize_t> data[at + i] << (8 * i)
                length += 1
                at += extra
            if length > end - at and (starts != NULL or size - done > end - at):
                return DAMAGED
            take = length
            if take > size - done:
                if starts != NULL:
                    return DAMAGED
                take = size - done
            if length <= 16 and end - at >= 16 and size - done >= 16:
                memcpy(out + done, data + at, 16)
            else:
                memcpy(out + done, data + at, take)
            at += length
            done += take
        else:
            if tag & 3 == 1:
                if at >= end:
                    return DAMAGED
                length = (tag >> 2 & 7) + 4
                offset = <Py_ssize_t> (tag >> 5) << 8 | data[at]
                at += 1
            elif tag & 3 == 2:
                if at + 2 > end:
                    return DAMAGED
                length = (tag >> 2) + 1
                offset = <Py_ssize_t> data[at] | <Py_ssize_t> data[at + 1] << 8
                at += 2
            else:
                if at + 4 > end:
                    return DAMAGED
                length = (tag >> 2) + 1
                offset = (<Py_ssize_t> data[at] | <Py_ssize_t> data[at + 1] << 8 | <Py_ssize_t> data[at + 2] << 16
                          | <Py_ssize_t> data[at + 3] << 24)
                at += 4
            if offset == 0 or offset > done:
                return DAMAGED
            if starts != NULL and offset > done - begin:
                alone[0] = 0
            if length > size - done:
                if starts != NULL:
                    return DAMAGED
                length = size - done
            if offset >= 16 and size - done >= 64 + SLACK:
                memcpy(out + done, out + done - offset, 16)
                if length > 16:
                    memcpy(out + done + 16, out + done + 16 - offset, 16)
                    if length > 32:
                        memcpy(out + done + 32, out + done + 32 - offset, 16)
                        memcpy(out + done + 48, out + done + 48 - offset, 16)
            elif offset >= 8 and size - done >= 64 + SLACK:
                i = 0
                while i < length:
                    memcpy(out + done + i, out + done + i - offset, 8)
                    i += 8
            else:
                for i in range(length):
                    out[done + i] = out[done + i - offset]
            done += length
    if starts != NULL and boundary < size:
        alone[0] = 0
    return at if done == size else DAMAGED


cdef inline bint _can_give(Py_ssize_t length, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) noexcept nogil:
    """Whether `data[at:end]` lies in the data, and may give `size` bytes."""
    return 0 <= at <= end <= length <= MOST_BYTES and 0 <= size <= (end - at) * MOST_GROWTH


def unpack_snappy(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t size):
    """See `kernel_python.unpack_snappy`."""
    if not _can_give(data.shape[0], at, data.shape[0], size):
        return None, None
    cdef bytes content = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(content)
    cdef Py_ssize_t count = (size + FRAGMENT - 1) / FRAGMENT, end
    cdef bytes starts = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef int32_t* first = <int32_t*> PyBytes_AS_STRING(starts)
    cdef bint alone = 1
    cdef Py_ssize_t length = data.shape[0]
    cdef const uint8_t* source = &data[0] if length else NULL
    with nogil:
        end = _unpack(source, at, length, out, size, first, &alone)
    if end != length:
        return None, None
    first[count] = <int32_t> length
    return content, starts if alone else None


def unpack_fragments(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size):
    """See `kernel_python.unpack_fragments`."""
    if not _can_give(data.shape[0], at, end, size):
        return None
    if at == end:
        return b""
    cdef bytes content = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(content)
    cdef const uint8_t* source = &data[0]
    cdef Py_ssize_t found
    with nogil:
        found = _unpack(source, at, end, out, size, NULL, NULL)
    return None if found < 0 else content


def byte_array_marks(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t count):
    """See `kernel_python.byte_array_marks`."""
    if not 0 <= at <= data.shape[0] <= MOST_BYTES or not 0 <= count <= data.shape[0]:
        return None
    cdef Py_ssize_t size = data.shape[0], pieces = (size + FRAGMENT - 1) / FRAGMENT, piece = 0, value = 0, length
    cdef bytes marks = PyBytes_FromStringAndSize(NULL, 8 * (pieces + 1))
    cdef int32_t* mark = <int32_t*> PyBytes_AS_STRING(marks)
    while True:
        while piece <= pieces and piece * FRAGMENT <= at:
            mark[2 * piece] = <int32_t> value
            mark[2 * piece + 1] = <int32_t> at
            piece += 1
        if value == count:
            break
        if size - at < 4:
            return None
        length = <Py_ssize_t> (<uint32_t> data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16
                               | <uint32_t> data[at + 3] << 24)
        if length > size - at - 4:
            return None
        at += 4 + length
        value += 1
    if at != size:
        return None
    while piece <= pieces:
        mark[2 * piece] = <int32_t> value
        mark[2 * piece + 1] = <int32_t> at
        piece += 1
    return marks


def byte_arrays(const uint8_t[::1] data, Py_ssize_t at, wanted, Py_ssize_t count, Py_ssize_t end):
    """See `kernel_python.byte_arrays`."""
    cdef Py_ssize_t size = data.shape[0], begin, number = 0, left = len(wanted), next = wanted[0] if left else count
    cdef const char* source = <const char*> &data[0] if size else NULL
    cdef list found = []
    if not 0 <= at <= size:
        return None
    for number in range(count):
        begin = at
        if size - at < 4:
            return found if number == count - 1 and at <= size < end and not left else None
        at += 4 + <Py_ssize_t> (<uint32_t> data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16
                                | <uint32_t> data[at + 3] << 24)
        if at > size and (number == next or number < count - 1):
            return None
        if number == next:
            found.append(PyBytes_FromStringAndSize(source + begin, at - begin))
            left -= 1
            next = wanted[len(found)] if left else count
    return found if at == end and not left else None


cdef enum:
    NO_RUN = 0
    RUN = 1
    BROKEN = 2
    ENDED = 3
    LONGEST_RUN = 1 << 30  # groups or values: a page has fewer, and sums stay within 64 bits


cdef struct Run:
    Py_ssize_t first  # number
    Py_ssize_t stop  # the number after the last
    int64_t value  # of all, or -1
    Py_ssize_t at  # first byte if packed
    Py_ssize_t next  # position of the next run


cdef extern from *:
    int __builtin_popcountll(unsigned long long) nogil


cdef int _next_run(const uint8_t* data, Py_ssize_t size, int width, Run* run) noexcept nogil:
    """Advance to the next run. ENDED where the bytes end inside its length, BROKEN where its value is wrong."""
    cdef uint64_t header = 0
    cdef int shift = 0, i, value_bytes = (width + 7) >> 3
    cdef Py_ssize_t at = run.next
    cdef uint8_t byte
    if at >= size:
        return NO_RUN
    while True:
        if at >= size:
            return ENDED
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return BROKEN
        header |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    run.first = run.stop
    run.at = at
    if header & 1:
        header = min(header >> 1, <uint64_t> LONGEST_RUN)
        run.stop = run.first + <Py_ssize_t> header * 8
        run.value = -1
        run.next = at + <Py_ssize_t> header * width
        return RUN
    if size - at < value_bytes:
        return BROKEN
    run.value = 0
    for i in range(value_bytes):
        run.value |= <int64_t> data[at + i] << (8 * i)
    if run.value >> width:
        return BROKEN
    run.stop = run.first + <Py_ssize_t> min(header >> 1, <uint64_t> LONGEST_RUN * 8)
    run.next = at + value_bytes
    return RUN


cdef inline Py_ssize_t _ones(const uint8_t* data, Py_ssize_t count) noexcept nogil:
    """The ones in the first `count` bits."""
    cdef Py_ssize_t ones = 0, i
    for i in range(count >> 3):
        ones += __builtin_popcountll(data[i])
    if count & 7:
        ones += __builtin_popcountll(data[count >> 3] & ((1 << (count & 7)) - 1))
    return ones


cdef _check(int64_t width, positions):
    """ValueError unless numbers of this width at these positions can be asked for."""
    if not 0 <= width <= MOST_BITS:
        raise ValueError(f"numbers of {width} bits, at most {MOST_BITS} are possible")
    cdef int64_t before = 0, position
    for position in positions:
        if position < before:
            raise ValueError(f"number {position} after number {before}")
        before = position


def hybrid_values(const uint8_t[::1] data, int64_t width, positions, Py_ssize_t runs):
    """See `kernel_python.hybrid_values`."""
    _check(width, positions)
    cdef Run run = Run(0, 0, 0, 0, 0)
    cdef Py_ssize_t size = data.shape[0], count = len(positions), done = 0, wanted = positions[0], bit, begin, end, i
    cdef const uint8_t* source = &data[0] if size else NULL
    cdef uint64_t number
    cdef int state
    if not width:
        return [0] * count
    found = []
    while True:
        state = RUN if runs > 0 else NO_RUN
        if state == RUN:
            state = _next_run(source, size, <int> width, &run)
        elif run.next < size:
            return None
        runs -= 1
        if state != RUN:
            _refuse(state, <int> width, wanted)
        while wanted < run.stop:
            if run.value < 0:
                bit = (wanted - run.first) * width
                begin = run.at + (bit >> 3)
                end = run.at + ((bit + width + 7) >> 3)
                if end > size:
                    raise ValueError(ENDS_IN_RUN)
                number = 0
                for i in range(end - begin):
                    number |= <uint64_t> source[begin + i] << (8 * i)
                found.append(number >> (bit & 7) & ((<uint64_t> 1 << width) - 1))
            else:
                found.append(run.value)
            done += 1
            if done == count:
                return found
            wanted = positions[done]


def hybrid_flags(const uint8_t[::1] data, positions, Py_ssize_t runs):
    """See `kernel_python.hybrid_flags`."""
    _check(1, positions)
    cdef Run run = Run(0, 0, 0, 0, 0)
    cdef Py_ssize_t size = data.shape[0], count = len(positions), done = 0, wanted = positions[0], within, ones = 0
    cdef const uint8_t* source = &data[0] if size else NULL
    cdef int state
    found = []
    while True:
        state = RUN if runs > 0 else NO_RUN
        if state == RUN:
            state = _next_run(source, size, 1, &run)
        elif run.next < size:
            return None
        runs -= 1
        if state != RUN:
            _refuse(state, 1, wanted)
        while wanted < run.stop:
            within = wanted - run.first
            if run.value < 0:
                if run.at + (within >> 3) >= size:
                    raise ValueError(ENDS_IN_RUN)
                flag = source[run.at + (within >> 3)] >> (within & 7) & 1
                found.append((flag == 1, ones + _ones(source + run.at, within)))
            else:
                found.append((run.value == 1, ones + within * run.value))
            done += 1
            if done == count:
                return found
            wanted = positions[done]
        if run.value < 0:
            ones += _ones(source + run.at, min(run.stop - run.first, 8 * max(size - run.at, 0)))
        else:
            ones += (run.stop - run.first) * run.value


cdef _refuse(int state, int width, Py_ssize_t wanted):
    if state == ENDED:
        raise ValueError("the bytes end inside the length of a run")
    if state == BROKEN:
        raise ValueError(f"a run with a length or a value that {width} bits do not give, or a truncated run")
    raise ValueError(f"the runs end before number {wanted}")


def hybrid_marks(const uint8_t[::1] data, Py_ssize_t at, int64_t width, Py_ssize_t count, Py_ssize_t step):
    """See `kernel_python.hybrid_marks`."""
    if not 0 <= at <= data.shape[0] <= MOST_BYTES or not 0 < width <= MOST_BITS or step <= 0:
        return None
    cdef Run run = Run(0, 0, 0, 0, at)
    cdef Py_ssize_t size = data.shape[0], pieces = (size + step - 1) / step, piece = 0, group
    cdef bytes marks = PyBytes_FromStringAndSize(NULL, 12 * (pieces + 1))
    cdef int32_t* mark = <int32_t*> PyBytes_AS_STRING(marks)
    cdef const uint8_t* source = &data[0] if size else NULL
    while True:
        while piece <= pieces and (piece * step <= run.next or run.stop >= count):
            mark[3 * piece] = mark[3 * piece + 2] = <int32_t> run.stop
            mark[3 * piece + 1] = <int32_t> run.next
            piece += 1
        if run.stop >= count:
            return marks if run.next == size else None
        if _next_run(source, size, <int> width, &run) != RUN or run.next > size or run.stop > LONGEST_RUN:
            return None
        while run.value < 0 and piece <= pieces:
            group = (max(piece * step - run.at, 0) + width - 1) / width
            if run.at + group * width >= run.next:
                break
            mark[3 * piece] = <int32_t> (run.first + 8 * group)
            mark[3 * piece + 1] = <int32_t> (run.at + group * width)
            mark[3 * piece + 2] = <int32_t> run.stop
            piece += 1
