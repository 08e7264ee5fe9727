"""The base package: it imports no other package of Gnomon, and all others may import it.

`errors` has the base class of all errors, with their fields and the advice that they give; `arrow` the parts of pyarrow
that are imported when they are used; `compression` bounded decompression; `json_forms` dates, times and floats in JSON;
`readers` the protocol of an open file; `varints` variable-length integers; `kernel` loops over bytes, compiled where
there is a C compiler; `kernel_python`, `records_python` and `hashes_python` the same loops in Python."""
