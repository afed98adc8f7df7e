"""Traces of ringside and of the kernel, in Python: reading them, and writing events into them.

Reading:

>>> import ringside
>>> t = ringside.open("work", events="libc:malloc")
>>> for event in t:
...     print(event.ts, event.task, event["size"])
...     break
100002600000 cc1plus 17
>>> t.columns("libc:malloc", ["ts", "size"])["size"].sum() > 0
True

What can be opened: recordings, trace.dat files, instances, and by follow() sockets of external writers, any number of them on one timeline. Instances are
looked at; nothing is consumed. Times are nanoseconds. Nothing is lost silently: losses are rows of their own (``event.lost``, ``losses=True``), or are counted in
``.lost`` of each answer, with a LossWarning; so is each doubt whether more is missing (``.problems``).

Writing, to the instance of ``ringside record python3 program.py``, or to one of its own after attach():

>>> order = ringside.event("shop", "order", id=int, customer=str)
>>> order(1, "Ada")
>>> with ringside.span("checkout"):
...     ringside.counter("queue", 3)

Writing needs neither NumPy nor the reading side; these are imported when they are first used.
"""
import importlib as _importlib

from ._writer import DeclaredEvent
from .writing import LogHandler, async_begin, async_end, attach, counter, detach, disable, enable, event, instance, instant, process_counter, save, span

_reading = ["open", "follow", "Trace", "Event", "Events", "Table", "Heat", "Category", "Error", "LossWarning"]
__all__ = _reading + [
    "event", "DeclaredEvent", "span", "instant", "counter", "process_counter", "async_begin", "async_end", "LogHandler", "attach", "detach", "instance", "enable", "disable", "save",
]


def __getattr__(name):
    if name not in _reading:
        raise AttributeError(f"module 'ringside' has no attribute {name!r}")
    found = getattr(_importlib.import_module(".reading", __name__), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted(__all__)
