"""The .dpomdp file format of finite Dec-POMDPs: `read` and `write` files, `parse` and make a `text`."""

from marco.tabular.dpomdp.format import FormatError, parse, read, text, write

__all__ = ["FormatError", "parse", "read", "text", "write"]
