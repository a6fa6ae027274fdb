"""Values as text, and back: what workers, records, libraries and bug reports are written in. Nothing is pickled.

A text begins with its kind and version (`neoflow plan 1`). It is read by hand-written readers that accept their grammar
and nothing else; whatever else the text holds, they raise `TextError` with the line and the column.

scan (tokens, quoting, places of errors) · record (frozen dataclasses)
"""

from neoflow.text.record import read_record, write_record
from neoflow.text.scan import Scanner, Token, header, is_real, quote

__all__ = ["Scanner", "Token", "header", "is_real", "quote", "read_record", "write_record"]
