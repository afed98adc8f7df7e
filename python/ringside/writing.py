"""Writing events: python/ringside/__init__.py has the description, and the names that users import.

A call costs some 200 ns while its event is enabled, and less than half of that while it is not. Threads are those of Python; in an asyncio task, spans are on
a track with the task's name, and a number where another task has that name.
"""
import enum as _enum
import functools as _functools
import inspect as _inspect
import itertools as _itertools
import logging as _logging
import os as _os
import re as _re
import threading as _threading
import weakref as _weakref

from . import _writer

_name = _re.compile("[A-Za-z_][A-Za-z0-9_]*")
_types = {bool: "bool", int: "int", float: "float", str: "str"}


def _field(name, type):
    """A field as the extension takes it. A name like class_ is shown without its underscore."""
    if not _name.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a field: letters, digits and _")
    if isinstance(type, _enum.EnumMeta):
        members = tuple((member.name, member.value) for member in type)
        if not all(isinstance(value, int) for _, value in members):
            raise TypeError(f"{name}: the values of {type.__name__} are no ints")
        return name, "int", members
    if not isinstance(type, str):
        type = _types.get(type, getattr(type, "__name__", repr(type)))
    return name, type, ()


def event(system, name, /, **fields):
    """Declares an event: a function that writes it, if it is enabled. The same declaration may be made in several modules.

    fields: their names and types: bool, int (64 bits), float, str, an Enum of ints, which is shown by name, or "int8" to "int64", "uint8" to "uint64",
    "float32". At most 32, and 4,000 bytes: longer texts are shortened.

    >>> order = event("shop", "order", id=int, customer=str)
    >>> order(1, "Ada")
    >>> order(id=2, customer="Grace")
    >>> order.name, order.fields
    ('shop:order', ('id', 'customer'))

    ``order.enabled`` says whether a call writes it now. A wrong number of values is a TypeError. A value that does not fit is no error, as the program has to
    go on when it is traced: a RuntimeWarning says it, and the event is counted as one that came into no ring. Of any object in a field for texts, str() is written.
    """
    for part in (system, name):
        if not _name.fullmatch(part):
            raise ValueError(f"{part!r} is no name of an event: letters, digits and _")
    return _writer.declare(system, name, None, tuple(_field(*field) for field in fields.items()))


_tasks = _weakref.WeakValueDictionary()  # by track
_numbers = _itertools.count(2)
_naming = _threading.RLock()  # a signal handler may begin a span, too


def _track_of(task, name):
    """The track of an asyncio task: its name, with a number if another one that goes on has it. The task keeps it."""
    track = name
    try:
        with _naming:
            other = _tasks.setdefault(track, task)
            if other is not task and not other.done():
                track = f"{name} ({next(_numbers)})"
            _tasks[track] = task
        task._ringside_track = name, track
    except (AttributeError, TypeError):  # a loop's own kind of task, which keeps nothing
        return name
    return track


class span(_writer.Span):
    """A slice of this thread's time, of the asyncio task's where one runs, or of the track of that name.

    >>> with span("checkout"):
    ...     pass

    As a decorator it is made anew for each call, also of a coroutine:

    >>> @span("pay")
    ... def pay(amount):
    ...     return amount
    >>> pay(3)
    3

    A generator, also an asynchronous one, has a span for each time that it runs, from where it is resumed until it yields, returns or raises. So spans of
    its caller, which runs in between, nest as they should.
    """

    def __call__(self, function):
        name, track = self.name, self.track
        if _inspect.isgeneratorfunction(function):

            @_functools.wraps(function)
            def traced(*values, **named):
                generator = function(*values, **named)
                resume, value = generator.send, None
                while True:
                    try:
                        with _writer.Span(name, track):
                            item = resume(value)
                    except StopIteration as end:
                        return end.value
                    try:
                        resume, value = generator.send, (yield item)
                    except GeneratorExit:
                        with _writer.Span(name, track):
                            generator.close()
                        raise
                    except BaseException as error:
                        resume, value = generator.throw, error

        elif _inspect.isasyncgenfunction(function):

            @_functools.wraps(function)
            async def traced(*values, **named):
                generator = function(*values, **named)
                resume, value = generator.asend, None
                while True:
                    try:
                        with _writer.Span(name, track):
                            item = await resume(value)
                    except StopAsyncIteration:
                        return
                    try:
                        resume, value = generator.asend, (yield item)
                    except GeneratorExit:
                        with _writer.Span(name, track):
                            await generator.aclose()
                        raise
                    except BaseException as error:
                        resume, value = generator.athrow, error

        elif _inspect.iscoroutinefunction(function):

            @_functools.wraps(function)
            async def traced(*values, **named):
                with _writer.Span(name, track):
                    return await function(*values, **named)

        else:

            @_functools.wraps(function)
            def traced(*values, **named):
                with _writer.Span(name, track):
                    return function(*values, **named)

        return traced


instant = _writer.instant
counter = _writer.counter
process_counter = _writer.process_counter


def async_begin(name, id):
    """A span that may end on another thread. id: an int that tells it from others of its name that are open at the same time."""
    _writer.async_("B", name, id & 0xFFFFFFFFFFFFFFFF)


def async_end(name, id):
    """The end of the span that async_begin() began with this name and id."""
    _writer.async_("E", name, id & 0xFFFFFFFFFFFFFFFF)


_levels = ((_logging.CRITICAL, "fatal", 5), (_logging.ERROR, "error", 4), (_logging.WARNING, "warn", 3), (_logging.INFO, "info", 2), (_logging.DEBUG, "debug", 1))


class LogHandler(_logging.Handler):
    """Messages of the module logging as events, which ``ringside log`` shows beside those of programs in C++.

    >>> import logging
    >>> log = logging.getLogger("shop")
    >>> log.addHandler(LogHandler())
    >>> log.warning("%s is slow", "Ada")

    system: the events are log:debug, log:info, log:warn, log:error, log:fatal and log:trace, of this system. A message is put together only if its event is
    enabled; with a formatter, as that says, else it is the message with the traceback that it may have.
    """

    def __init__(self, level=_logging.NOTSET, system="log"):
        super().__init__(level)
        if not _name.fullmatch(system):
            raise ValueError(f"{system!r} is no system of events: letters, digits and _")
        fields = tuple(_field(*field) for field in {"level": "level", "file": str, "line": "uint32", "logger": str, "message": str}.items())
        shown = '"%s:%u: %s: %s", __get_str(file), REC->line, __get_str(logger), __get_str(message)'
        declared = {word: _writer.declare(system, word, shown, fields) for word in ("trace", "debug", "info", "warn", "error", "fatal")}
        self._events = [(least, number, declared[word]) for least, word, number in _levels]
        self._lowest = (_logging.NOTSET, 0, declared["trace"])

    def emit(self, record):
        least, number, declared = next((row for row in self._events if record.levelno >= row[0]), self._lowest)
        if not declared.enabled:
            return
        try:
            message = (self.formatter or _plain).format(record)
            declared(number, record.filename, record.lineno, record.name, message)
        except Exception:
            self.handleError(record)


_plain = _logging.Formatter("%(message)s")


def attach(name=None, *, events=None, ring_bytes=0, budget_bytes=0, mode="overwrite"):
    """Makes this process write into an instance, which is made if it is not there: by name, or by path with a / in it; None: the environment's
    RINGSIDE_INSTANCE, else "default". Not needed with ``ringside record python3 program.py``.

    Of an instance that is made: events: those that are enabled at first, "shop:*,log:warn"; None: all. ring_bytes: of events that each ring holds, 0: 1 MiB.
    budget_bytes: of memory that all rings may take; 0: a quarter of the machine's. mode: a full ring overwrites its oldest events, or, with "discard",
    refuses new ones and counts them. Raises OSError, ValueError.
    """
    modes = {"overwrite": 0, "discard": 1}
    if mode not in modes:
        raise ValueError(f"the mode is overwrite or discard, not {mode!r}")
    _writer.open(name, events, ring_bytes, budget_bytes, modes[mode])


def detach():
    """Events are disabled from here on, until the next attach(); those that were written stay readable."""
    _writer.close()


def instance():
    """The directory of the instance that this process writes into, which open() and the commands take; None: there is none."""
    return _writer.instance()


def enable(events):
    """Enables events of the instance for all of its programs: "shop:*", "shop:order,log:warn". Raises OSError."""
    _writer.enable(events)


def disable(events):
    """Disables events of the instance for all of its programs. Raises OSError."""
    _writer.disable(events)


def save(path):
    """Saves what the rings hold now as a recording; a path that ends in .dat, .pftrace, .json, .csv or .tar is a file of that format. Raises OSError."""
    _writer.save(_os.fspath(path))
