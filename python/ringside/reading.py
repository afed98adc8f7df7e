"""Reading traces: python/ringside/__init__.py has the description, and the names that users import."""
import os as _os
import sys as _sys
import warnings as _warnings
from typing import NamedTuple as _NamedTuple

import numpy as _numpy

from . import _ringside
from ._ringside import Error, Event, Events

__all__ = ["open", "follow", "Trace", "Event", "Events", "Table", "Heat", "Category", "Error", "LossWarning"]


class LossWarning(UserWarning):
    """Events are missing in what was read, or may be."""


class Category(_NamedTuple):
    """A column of texts: ``values[codes[i]]`` is the text of row i; the code -1 stands for none.

    >>> c = Category(_numpy.array([0, 1, 0, -1], "int32"), ["eth0", "lo"])
    >>> c.texts().tolist()
    ['eth0', 'lo', 'eth0', None]
    """

    codes: "_numpy.ndarray"
    values: "list[str]"

    def texts(self):
        """The texts themselves, as an array of objects."""
        return _numpy.array(list(self.values) + [None], dtype=object)[self.codes]

    def pandas(self):
        """The same as a pandas.Categorical."""
        import pandas

        return pandas.Categorical.from_codes(self.codes, self.values)


class Table(dict):
    """Arrays by name, all of one length. Texts are a Category.

    ``lost``: events missing in what was read: lost in gaps, refused by the rings, or not recorded. ``problems``: what could not be read, a sentence each. ``notices``: remarks on how it was read.
    ``counts``: further numbers, such as the starts of a latency that never ended.
    """

    def __init__(self, columns, told, losses=False):
        super().__init__(columns)
        _take(self, told, self["lost"] if losses else ())

    def __len__(self):
        first = next(iter(self.values()), ())
        return len(first.codes if isinstance(first, Category) else first)

    def frame(self):
        """The same as a pandas.DataFrame."""
        import pandas

        frame = pandas.DataFrame({name: column.pandas() if isinstance(column, Category) else column for name, column in self.items()})
        frame.attrs.update(lost=self.lost, problems=self.problems)
        return frame


class Heat:
    """Counts by time and size: ``count[i, j]`` values between ``low[j]`` and ``high[j]``, both included, from ``ts[i]`` on for ``column_ns``."""

    def __init__(self, columns, told):
        self.ts, self.column_ns = columns["ts"], columns["column_ns"]
        self.low, self.high, self.count = columns["low"], columns["high"], columns["count"]
        _take(self, told)


def _take(answer, told, shown=()):
    """shown: losses that are rows of the answer."""
    told = dict(told)
    answer.lost, answer.problems, answer.notices = told.pop("lost"), told.pop("problems"), told.pop("notices")
    told.pop("events")
    answer.counts = told
    unseen = answer.lost - int(sum(shown))
    if unseen > 0:
        _warn(f"{unseen} events were lost and are not in the answer; columns(losses=True) and losses() show those in gaps")
    for problem in answer.problems:
        _warn(problem)


def _warn(sentence):
    """At the line that called the package."""
    level, frame = 1, _sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    _warnings.warn(sentence, LossWarning, stacklevel=level)


def _paths(one_or_more):
    """Bytes, because a path may be no text."""
    if one_or_more is None:
        return []
    if isinstance(one_or_more, (str, bytes, _os.PathLike)):
        return [_os.fsencode(one_or_more)]
    return [_os.fsencode(one) for one in one_or_more]


def _text(name, text):
    if text is not None and not isinstance(text, str):
        raise TypeError(f"the {name} is a text, or None; not {text!r}")
    return text or ""


def _list(one_or_more):
    if one_or_more is None:
        return []
    if isinstance(one_or_more, (str, bytes, _os.PathLike)):
        return [_os.fsdecode(one_or_more)]
    return [_os.fsdecode(one) for one in one_or_more]


def _key_values(rows):
    if rows and all(isinstance(row, int) for row in rows):
        return _numpy.array(rows, dtype="uint64" if max(rows) >= 2**63 and min(rows) >= 0 else "int64")
    if rows and all(isinstance(row, (int, float)) for row in rows):
        return _numpy.array(rows, dtype="float64")
    values = {}
    codes = [values.setdefault(str(row), len(values)) for row in rows]
    return Category(_numpy.array(codes, dtype="int32"), list(values))


class Trace:
    """What ``open`` returns. Each call reads anew, so an instance that is written to shows more each time."""

    def __init__(self, where, events, filter, time):
        self._where, self._events, self._filter, self._time = _paths(where), _list(events), _text("filter", filter), _text("time", time)
        self.events()  # an error comes at once

    def __repr__(self):
        return f"<ringside.Trace {', '.join(where.decode(errors='replace') for where in self._where) or 'ringside.data'}>"

    def _wanted(self):
        return _ringside.Wanted(self._where, self._events, self._filter, self._time, [], False, 0.0, 0.0)

    def __iter__(self):
        """Events and losses, in the order of time.

        >>> t = open("work")
        >>> sum(event.lost for event in t)
        1234
        """
        return Events(self._wanted())

    def events(self):
        """The kinds of events with the names of their fields.

        >>> open("work").events()["libc:malloc"]
        ['size', 'ptr']
        """
        return _ringside.event_types(self._wanted())[0]

    def columns(self, events=None, names=("ts", "cpu", "tid", "event"), losses=False):
        """Columns of the events that match, as NumPy arrays by name.

        events: of those that open() chose. names: fields that all of these events have, or one of ts, cpu, ring, event, system, task, thread,
        tid, pid, process, cgroup, source (which of several files or buffers; of one alone: kernel or program), stack (its functions, innermost first, with ; between them), stack[0] (the innermost one). A cpu that is
        unknown is -1. losses: each loss is a row, too, and the column "lost" says how many; the fields are 0, NaN or no text there.

        >>> c = open("work").columns("sched:sched_switch", ["ts", "cpu", "prev_comm", "next_pid"])
        >>> len(c), sorted(c["prev_comm"].values), c["next_pid"].dtype
        (128, ['as', 'cc1plus', 'swapper'], dtype('int32'))
        """
        return Table(*_ringside.columns(self._wanted(), _list(events), _list(names), losses), losses)

    def frame(self, events=None, names=("ts", "cpu", "tid", "event"), losses=False):
        """The same as a pandas.DataFrame; texts are categories.

        >>> open("work").frame("sched:sched_switch", ["next_comm"])["next_comm"].value_counts()["swapper"]
        64
        """
        return self.columns(events, names, losses).frame()

    def losses(self):
        """Each loss: when the events behind it begin, in which ring, and how many were lost.

        >>> t = open("work").losses()
        >>> t["ring"], t["lost"]
        (array([0]), array([1234]))
        """
        columns, told = _ringside.columns(self._wanted(), [], ["ts", "cpu", "ring"], True)
        rows = columns["lost"] != 0
        return Table({name: column[rows] for name, column in columns.items()}, told, True)

    def hist(self, keys, values=(), most_keys=100_000):
        """Counts by one key or two, the largest count first: ``ringside hist``. For each value sum, mean, min, max, p50 and p99.

        >>> t = open("work").hist("libc:malloc/task", ["libc:malloc/size"])
        >>> sorted(t)
        ['count', 'libc:malloc/size.max', 'libc:malloc/size.mean', 'libc:malloc/size.min', 'libc:malloc/size.p50', 'libc:malloc/size.p99', 'libc:malloc/size.sum', 'libc:malloc/task']
        >>> t["count"].sum()
        1200
        """
        if most_keys < 1:
            raise ValueError(f"hist() keeps at least one key; most_keys is {most_keys}")
        columns, told = _ringside.hist(self._wanted(), _list(keys), _list(values), most_keys)
        columns = {name: _key_values(column) if isinstance(column, list) else column for name, column in columns.items()}
        return Table(columns, told)

    def latency(self, start, end, keys=(), by="", first=False, filter=""):
        """The time from a start to the end that belongs to it, a row for each pair: ``ringside latency``.

        keys: what both have in common, a column's name or (start's, end's); none: the thread. by: a column to group by. first: the first start
        counts, not the last. ``counts`` says what was not measured; a pair is doubtful if a loss may have fallen into it. filter: a
        condition on these pairs, as of ``ringside latency``: ``latency > 1ms && start/comm == make``; the trace's own filter is asked of events.

        >>> t = open("work").latency("sched:sched_switch", "sched:sched_switch", [("next_pid", "prev_pid")], by="prev_comm")
        >>> t["ns"].max(), t.counts["pairs"]
        (20000000, 126)
        """
        return Table(*_ringside.latency(self._wanted(), _pairs(start, end, keys, by, first, filter)))

    def heat(self, value="", start="", end="", keys=(), columns=256, precision=2, filter=""):
        """Counts by time and size: of a value ("libc:malloc/size"), or of the latencies from start to end, with filter only of pairs that meet it. precision: 2**precision rows for each
        power of two.

        >>> h = open("work").heat("libc:malloc/size")
        >>> h.count.sum(), h.count.shape == (len(h.ts), len(h.low))
        (1200, True)
        """
        if bool(value) == bool(start or end or keys or filter) or bool(start) != bool(end):
            raise ValueError("heat() takes a value, or a start and an end")
        if not 1 <= columns <= 65536 or not 0 <= precision <= 16:
            raise ValueError(f"heat() takes 1 to 65536 columns and a precision of 0 to 16, not {columns} and {precision}")
        return Heat(*_ringside.heat(self._wanted(), value, _pairs(start, end, keys, "", False, filter), columns, precision))


def _pairs(start, end, keys, by, first, filter):
    keys = [keys] if isinstance(keys, str) else list(keys)
    return _ringside.Pairs(start, end, [(key, key) if isinstance(key, str) else tuple(key) for key in keys], by, first, filter)


def open(where=(), *, events=None, filter="", time=""):
    """Opens recordings, trace.dat files, instances; none: ./ringside.data.

    events: only these, as ``ringside report -e`` names them; filter: as ``--filter``; time: a part, as ``--time``, of which large
    recordings are not read further.

    >>> open("work", time="+0s..+1ms")
    <ringside.Trace work>
    >>> open("work", events="libc:read", filter="duration_ns > 100000")
    <ringside.Trace work>
    >>> open("nothing")
    Traceback (most recent call last):
    ringside.Error: ...
    """
    return Trace(where, events, filter, time)


def follow(where=(), *, events=None, filter="", kernel=None, timeout=None, look_ahead=0.1):
    """Events and losses as they come, in the order of time.

    where: instances, sockets of external writers; also recordings, which end where nothing more is written. kernel: events of the kernel, live (as root). timeout: ends after as many seconds; None: never,
    but Ctrl-C ends it. look_ahead: how many seconds a writer that stands in the middle of an event may delay the others.

    >>> sum(1 for event in follow("work", events="libc:malloc", timeout=1))
    1201
    """
    if timeout is not None and not timeout > 0:
        raise ValueError("the timeout is a number of seconds above 0, or None")
    return Events(_ringside.Wanted(_paths(where), _list(events), _text("filter", filter), "", _list(kernel), True, look_ahead, timeout or 0.0))
