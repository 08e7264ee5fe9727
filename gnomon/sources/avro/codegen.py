"""Writes the Python source of a decoder, line by line. `decoder` compiles it for a schema and a choice of columns.

The source contains only generated names and numbers, never a name or a value of the file. Its variables: `b` is the
bytes, `p` the position in them, `v` the last number read; `a3` appends to list 3; the others are the arguments of
`make`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

INDENT = "    "
ARGUMENTS = "lists, constants, unsigned, length, wrong, budget"  # the arguments of `make`


class Program:
    """Python source with the functions of a decoder. `lists`: numbers of the lists to which it appends; `constants`:
    the objects that it uses."""

    def __init__(self) -> None:
        self.lists: set[int] = set()
        self.constants: list[object] = []
        self._done: list[str] = []
        self._open: list[list[str]] = []  # the lines of each open function, the innermost last
        self._indents: list[int] = []
        self._functions = 0

    def line(self, text: str) -> None:
        self._open[-1].append(INDENT * self._indents[-1] + text)

    def append(self, number: int, value: str) -> None:
        """Add a line that appends `value` to list `number`."""
        self.lists.add(number)
        self.line(f"a{number}({value})")

    def constant(self, value: object) -> str:
        """The variable of the source that holds this object."""
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def number(self) -> None:
        """Add lines that read a number into `v`, in zigzag form."""
        self.line("v = b[p]; p += 1")
        with self.block("if v > 127:"):
            self.line("if b[p] < 128: v = v & 127 | b[p] << 7; p += 1")  # two bytes: no call
            self.line("else: v, p = unsigned(b, p - 1)")

    def skip_number(self) -> None:
        self.line("while b[p] > 127: p += 1")
        self.line("p += 1")

    def length(self) -> None:
        """Add lines that read the length of a string into `v`, in zigzag form: twice the length."""
        self.line("v = b[p]; p += 1")
        self.line("if v & 129: v, p = length(b, p - 1)")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines that follow `head`, a line that ends in a colon."""
        self.line(head)
        self._indents[-1] += 1
        self.line("pass")  # a value without bytes may add no other line
        yield
        self._indents[-1] -= 1

    @contextmanager
    def function(self, arguments: str) -> Iterator[str]:
        """Begin a function of the program, which may be within the code of another one. Gives its name."""
        name = f"f{self._functions}"
        self._functions += 1
        self._open.append([])
        self._indents.append(1)
        with self.block(f"def {name}({arguments}):"):
            yield name
        self._done += self._open.pop()
        self._indents.pop()

    def text(self, answer: str) -> str:
        """The whole program: a function `make` of ARGUMENTS that returns `answer`, the names of functions."""
        head = [f"def make({ARGUMENTS}):", f"{INDENT}run = budget.run"]
        head += [f"{INDENT}a{number} = lists[{number}].append" for number in sorted(self.lists)]
        head += [f"{INDENT}k{i} = constants[{i}]" for i in range(len(self.constants))]
        return "\n".join([*head, *self._done, f"{INDENT}return {answer}", ""])
