"""The ground floor: what every other room uses, and what uses no other room.

`errors` is the base of all errors, with their fields; `actions` is the table of what to do about them; `compression`
decompresses to a bounded number of bytes; `readers` is the protocol of an open file; `varints`
reads and writes variable-length integers."""
