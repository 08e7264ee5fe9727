# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled loops of `gnomon.base.kernel`. `kernel_python.py` has the same functions in Python, and is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

VERSION = 1  # as `kernel_python.VERSION`

cdef enum:
    FRAGMENT = 65536  # content bytes that a snappy encoder compresses on their own
    SLACK = 16  # bytes that a fast copy may write past its end
    DAMAGED = -1


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


def unpack_snappy(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t size):
    """See `kernel_python.unpack_snappy`."""
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
    cdef bytes content = PyBytes_FromStringAndSize(NULL, size)
    cdef Py_ssize_t found
    if at < 0 or end > data.shape[0]:
        return None
    if at >= end:
        return None if size else b""
    found = _unpack(&data[0], at, end, <uint8_t*> PyBytes_AS_STRING(content), size, NULL, NULL)
    return None if found < 0 else content


def byte_array_marks(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t count):
    """See `kernel_python.byte_array_marks`."""
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


def byte_array_span(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t wanted, Py_ssize_t count, Py_ssize_t end):
    """See `kernel_python.byte_array_span`."""
    cdef Py_ssize_t size = data.shape[0], begin, first = -1, stop = -1, number
    if at < 0:
        return None
    for number in range(count):
        begin = at
        if size - at < 4:
            return (first, stop) if number == count - 1 and at <= size < end and first >= 0 else None
        at += 4 + <Py_ssize_t> (<uint32_t> data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16
                                | <uint32_t> data[at + 3] << 24)
        if at > size and (number == wanted or number < count - 1):
            return None
        if number == wanted:
            first, stop = begin, at
    return (first, stop) if at == end and first >= 0 else None
