# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled loops of `gnomon.base.kernel` that hash keys. `hashes_python.py` has the same functions in Python, and is
the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gnomon.base.hashes_python import unscaled_bytes

VERSION = 4  # as `hashes_python.VERSION`

cdef enum:
    SEED = 42
    BLOCK_BYTES = 32

cdef int64_t MOST_BLOCKS = <int64_t> 1 << 31
cdef uint32_t[8] SALTS = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]
cdef uint64_t P1 = 0x9E3779B185EBCA87
cdef uint64_t P2 = 0xC2B2AE3D27D4EB4F
cdef uint64_t P3 = 0x165667B19E3779F9
cdef uint64_t P4 = 0x85EBCA77C2B2AE63
cdef uint64_t P5 = 0x27D4EB2F165667C5


cdef inline uint32_t _scrambled(uint32_t word) noexcept nogil:
    word *= <uint32_t> 0xCC9E2D51
    return (word << 15 | word >> 17) * <uint32_t> 0x1B873593


cdef inline uint32_t _mix(uint32_t state, uint32_t word) noexcept nogil:
    state ^= _scrambled(word)
    return (state << 13 | state >> 19) * 5 + <uint32_t> 0xE6546B64


cdef inline uint32_t _murmur3(const uint8_t* data, Py_ssize_t size, uint32_t state) noexcept nogil:
    cdef Py_ssize_t at = 0, i
    cdef uint32_t word
    while size - at >= 4:
        memcpy(&word, data + at, 4)
        state = _mix(state, word)
        at += 4
    for i in range(at, size):
        state = _mix(state, <uint32_t> <int> <signed char> data[i])
    state ^= <uint32_t> size
    state = (state ^ state >> 16) * <uint32_t> 0x85EBCA6B
    state = (state ^ state >> 13) * <uint32_t> 0xC2B2AE35
    return state ^ state >> 16


cdef inline uint64_t _turned(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline uint64_t _round(uint64_t state, const uint8_t* data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return _turned(state + word * P2, 31) * P1


cdef inline uint64_t _merge(uint64_t state, uint64_t lane) noexcept nogil:
    return (state ^ _turned(lane * P2, 31) * P1) * P1 + P4


cdef inline uint64_t _xxh64(const uint8_t* data, Py_ssize_t size, uint64_t seed) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint64_t one, two, three, four, state
    cdef uint32_t word
    if size >= 32:
        one, two, three, four = seed + P1 + P2, seed + P2, seed, seed - P1
        while size - at >= 32:
            one = _round(one, data + at)
            two = _round(two, data + at + 8)
            three = _round(three, data + at + 16)
            four = _round(four, data + at + 24)
            at += 32
        state = _turned(one, 1) + _turned(two, 7) + _turned(three, 12) + _turned(four, 18)
        state = _merge(_merge(_merge(_merge(state, one), two), three), four)
    else:
        state = seed + P5
    state += <uint64_t> size
    while size - at >= 8:
        state = _turned(state ^ _round(0, data + at), 27) * P1 + P4
        at += 8
    if size - at >= 4:
        memcpy(&word, data + at, 4)
        state = _turned(state ^ <uint64_t> word * P1, 23) * P2 + P3
        at += 4
    while at < size:
        state = _turned(state ^ data[at] * P5, 11) * P1
        at += 1
    state = (state ^ state >> 33) * P2
    state = (state ^ state >> 29) * P3
    return state ^ state >> 32


def murmur3(bytes data not None, uint32_t seed):
    """See `hashes_python.murmur3`."""
    return _murmur3(<const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), seed)


def hash_key(tuple key not None, bytes forms not None):
    """See `hashes_python.hash_key`."""
    cdef uint32_t short = SEED
    cdef uint64_t long_ = SEED
    cdef const uint8_t* data
    cdef Py_ssize_t size = 0, i
    cdef int64_t number
    cdef int32_t word
    cdef double real
    cdef float single
    cdef uint8_t form
    if len(key) != PyBytes_GET_SIZE(forms):
        raise ValueError(f"{len(key)} values of {len(forms)} columns")
    for i in range(len(key)):
        value, form = key[i], <uint8_t> PyBytes_AS_STRING(forms)[i]
        if value is None:
            continue
        if isinstance(value, str):
            data = <const uint8_t*> PyUnicode_AsUTF8AndSize(value, &size)
        elif isinstance(value, bytes) or form == b'n':
            own = value if isinstance(value, bytes) else unscaled_bytes(value)
            data, size = <const uint8_t*> PyBytes_AS_STRING(own), PyBytes_GET_SIZE(own)
        elif form == b'q':
            number = value
            data, size = <const uint8_t*> &number, 8
        elif form == b'i':
            word = value
            data, size = <const uint8_t*> &word, 4
        else:
            real = value
            real = NAN if real != real else real + 0.0
            single = <float> real
            data, size = (<const uint8_t*> &single, 4) if form == b'f' else (<const uint8_t*> &real, 8)
        short, long_ = _murmur3(data, size, short), _xxh64(data, size, long_)
    return <int32_t> short, <int64_t> long_


def may_hold(bytes blocks not None, Py_ssize_t first, int64_t count, int64_t key_hash):
    """See `hashes_python.may_hold`."""
    cdef uint32_t low = <uint32_t> key_hash, word
    if not 0 < count <= MOST_BLOCKS:
        raise ValueError(f"a filter of {count} blocks")
    cdef int64_t block = <int64_t> ((<uint64_t> key_hash >> 32) * <uint64_t> count >> 32)
    cdef int64_t left = PyBytes_GET_SIZE(blocks) // BLOCK_BYTES
    if not (0 <= first <= block and block - first < left):
        raise IndexError(f"block {block} of {left} from {first} on")
    cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(blocks) + (block - first) * BLOCK_BYTES
    cdef int i
    for i in range(8):
        memcpy(&word, at + 4 * i, 4)
        if not word >> (low * SALTS[i] >> 27) & 1:
            return False
    return True


cdef _check(const uint8_t[::1] data, const int64_t[::1] offsets, Py_ssize_t rows):
    cdef Py_ssize_t i
    if offsets.shape[0] != rows + 1 or offsets[0] < 0 or offsets[rows] > data.shape[0]:
        raise ValueError(f"{offsets.shape[0]} offsets for {rows} values in {data.shape[0]} bytes")
    for i in range(rows):
        if offsets[i] > offsets[i + 1]:
            raise ValueError("offsets that decrease")


cdef Py_ssize_t _width(const uint8_t[::1] data, Py_ssize_t rows) except -1:
    if data.shape[0] != 4 * rows and data.shape[0] != 8 * rows:
        raise ValueError(f"{data.shape[0]} bytes for {rows} numbers")
    return 4 if data.shape[0] == 4 * rows else 8


def murmur3_words(const uint8_t[::1] data, uint32_t[::1] hashes):
    """See `hashes_python.murmur3_words`."""
    cdef Py_ssize_t i, rows = hashes.shape[0], width = _width(data, rows)
    with nogil:
        if width == 4:  # a loop whose width the compiler knows takes half the time
            for i in range(rows):
                hashes[i] = _murmur3(&data[4 * i], 4, hashes[i])
        else:
            for i in range(rows):
                hashes[i] = _murmur3(&data[8 * i], 8, hashes[i])


def xxh64_words(const uint8_t[::1] data, uint64_t[::1] hashes):
    """See `hashes_python.xxh64_words`."""
    cdef Py_ssize_t i, rows = hashes.shape[0], width = _width(data, rows)
    with nogil:
        if width == 4:  # a loop whose width the compiler knows takes half the time
            for i in range(rows):
                hashes[i] = _xxh64(&data[4 * i], 4, hashes[i])
        else:
            for i in range(rows):
                hashes[i] = _xxh64(&data[8 * i], 8, hashes[i])


def murmur3_texts(const uint8_t[::1] data, const int64_t[::1] offsets, uint32_t[::1] hashes):
    """See `hashes_python.murmur3_texts`."""
    cdef Py_ssize_t i, rows = hashes.shape[0]
    cdef const uint8_t* begin = &data[0] if data.shape[0] else NULL
    _check(data, offsets, rows)
    with nogil:
        for i in range(rows):
            hashes[i] = _murmur3(begin + offsets[i], offsets[i + 1] - offsets[i], hashes[i])


def xxh64_texts(const uint8_t[::1] data, const int64_t[::1] offsets, uint64_t[::1] hashes):
    """See `hashes_python.xxh64_texts`."""
    cdef Py_ssize_t i, rows = hashes.shape[0]
    cdef const uint8_t* begin = &data[0] if data.shape[0] else NULL
    _check(data, offsets, rows)
    with nogil:
        for i in range(rows):
            hashes[i] = _xxh64(begin + offsets[i], offsets[i + 1] - offsets[i], hashes[i])
