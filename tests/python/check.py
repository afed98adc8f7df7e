#!/usr/bin/env python3
"""The Python package: its doctests, and its answers beside those of the commands.
usage: check.py BUILD_DIR doctests|answers|mixed|stacks|missing|live|interrupts|kernel|notebook|writing. Exit code 77, and a reason, where something is missing."""
import ast
import doctest
import importlib
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


build, what = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
top = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(build / "python"))
if not list(build.glob("python/ringside/_ringside*.so")):
    skip("the Python package was not built: it needs pybind11-dev and python3-dev")
try:
    import numpy
except ImportError:
    skip("python3-numpy is not installed")
try:
    import pandas
except ImportError:
    pandas = None
folder = tempfile.TemporaryDirectory(prefix="ringside-python-")
os.environ["RINGSIDE_ROOT"] = folder.name + "/root"
os.mkdir(folder.name + "/root")
os.chdir(folder.name)
import ringside

warnings.simplefilter("ignore", ringside.LossWarning)
binary = str(build / "ringside")
subprocess.run([build / "tests/browser_recordings", "."], check=True)
failed = 0


def expect(this, that, about=""):
    global failed
    if this != that:
        failed += 1
        print(f"line {sys._getframe(1).f_lineno}: {about} {str(this)[:500]} is not {str(that)[:500]}")


def report(*arguments):
    out = subprocess.run([binary, "report", "--json", *arguments], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def said(call):
    """The text of the error."""
    try:
        return f"no error: {call()}"
    except (ringside.Error, ValueError, TypeError, KeyError) as e:
        return str(e)


def doctests():
    if pandas is None:
        skip("python3-pandas is not installed")
    if int(numpy.__version__.split(".")[0]) >= 2:
        numpy.set_printoptions(legacy="1.25")  # 64, not np.int64(64)
    for module, least in ((ringside, 7), (importlib.import_module("ringside.reading"), 20), (importlib.import_module("ringside.writing"), 10)):
        found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
        expect(found.failed, 0)
        expect(found.attempted >= least, True, f"{found.attempted} examples of {module.__name__}")
    # The type hints name what is there, with the parameters that are there.
    hints = ast.parse((top / "python/ringside/__init__.pyi").read_text())
    scopes = {None: [n for n in hints.body if isinstance(n, ast.FunctionDef)]}
    scopes.update({n.name: [m for m in n.body if isinstance(m, ast.FunctionDef)] for n in hints.body if isinstance(n, ast.ClassDef)})
    expect(set(ringside.__all__) - set(scopes) - {f.name for f in scopes[None]}, set())
    for scope, functions in scopes.items():
        there = ringside if scope is None else getattr(ringside, scope)
        for function in functions:
            real = getattr(there, function.name, None)
            expect(real is not None, True, f"{scope}.{function.name}")
            if scope in (None, "Trace"):
                args = [a.arg for a in function.args.posonlyargs + function.args.args + function.args.kwonlyargs + [a for a in [function.args.kwarg] if a]]
                expect(args, list(inspect.signature(real).parameters), function.name)
                expect(bool(real.__doc__) or function.name.startswith("__"), True, f"{function.name} has no docstring")


def answers():
    for where in (["work"], ["work", "-e", "libc:*"]):
        lines = report(*where)
        events = where[2] if len(where) > 2 else None
        trace = ringside.open("work", events=events)
        mine = list(trace)
        expect(len(mine), len(lines))
        for e, line in zip(mine, lines):
            if "lost" in line:
                expect((e.lost, e.ts, e.cpu, e.ring, e.name), (line["lost"], line["ts"], line["cpu"], line["ring"], "lost"))
            else:
                expect((e.name, e.ts, e.cpu, e.tid, e.pid, e.task, e.ring, e.fields), (line["event"], line["ts"], line["cpu"], line["tid"], line["pid"], line["task"], line["ring"], line["fields"]))
        rows = [line for line in lines if "lost" not in line]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = trace.columns(None, ["ts", "cpu", "tid", "event", "task"])
        expect([w.category for w in caught], [ringside.LossWarning])
        expect(table.lost, 1234)
        expect(table["ts"].tolist(), [line["ts"] for line in rows])
        expect(table["cpu"].tolist(), [-1 if line["cpu"] is None else line["cpu"] for line in rows])
        expect(table["tid"].tolist(), [line["tid"] for line in rows])
        expect(table["event"].texts().tolist(), [line["event"] for line in rows])
        expect(table["task"].texts().tolist(), [line["task"] for line in rows])
        losses = trace.columns("libc:malloc", ["ts", "size"], losses=True)
        expect(losses["lost"].tolist(), [line.get("lost", 0) for line in lines if line.get("event", "libc:malloc") == "libc:malloc"])
        expect(losses["size"].tolist(), [line["fields"]["size"] if "fields" in line else 0 for line in lines if line.get("event", "libc:malloc") == "libc:malloc"])
    huge = ringside.open("huge").columns("libc:read", ["ts", "duration_ns", "fd"])
    expect(huge["duration_ns"].dtype, numpy.dtype("uint64"))
    expect(huge["ts"].view("uint64").tolist(), [line["ts"] for line in report("huge")])
    expect(len(ringside.open("empty").columns(None, ["ts"])), 0)

    # Every kind of field.
    subprocess.run([binary, "record", "-q", "-o", "kinds", "--", build / "example_01_write"], check=True)
    expect([e.fields for e in ringside.open("kinds") if not e.lost], [line["fields"] for line in report("kinds")])
    random = report("random")
    expect([e.fields for e in ringside.open("random") if not e.lost], [line["fields"] for line in random if "lost" not in line])
    lost = [line["lost"] for line in random if "lost" in line]
    expect((ringside.open("random").losses()["lost"].tolist(), ringside.open("random").losses()["cpu"].tolist()), (lost, [-1 if line["cpu"] is None else line["cpu"] for line in random if "lost" in line]))
    for event, field in (("app:numbers", "d"), ("app:others", "e"), ("app:others", "b"), ("app:texts", "name"), ("app:texts", "more"), ("kern:state", "state")):
        column = ringside.open("random").columns(event, [field], losses=True)
        mine = column[field].texts() if isinstance(column[field], ringside.Category) else column[field]
        theirs = [line["fields"][field] for line in random if line.get("event") == event]
        expect(mine[column["lost"] == 0].tolist(), [str(value) for value in theirs] if field == "state" else theirs, field)
    expect(ringside.open("kinds").columns("net:packet_in", ["load"])["load"].tolist(), [0.5] * 3)

    # The same as the commands' tables.
    def command(*arguments):
        return json.loads(subprocess.run([binary, *arguments, "--json"], check=True, capture_output=True, text=True).stdout)

    trace = ringside.open("work")
    table = trace.hist(["task", "event"])
    mine = {(a, b): n for a, b, n in zip(table["task"].texts(), table["event"].texts(), table["count"].tolist())}
    expect(mine, {(row["task"], row["event"]): row["count"] for row in command("hist", "task,event", "work", "-n", "1000")["rows"]})
    latency = trace.latency("sched:sched_switch", "sched:sched_switch", [("next_pid", "prev_pid")], by="prev_comm")
    theirs = command("latency", "sched:sched_switch", "sched:sched_switch", "work", "--key", "next_pid=prev_pid")
    expect(latency.counts["pairs"], theirs["pairs"])
    expect(int(latency["ns"].max()), theirs["all"]["max"])
    condition = "latency > 1us && start/next_pid != 0 && !(end/prev_comm == sh)"
    some = trace.latency("sched:sched_switch", "sched:sched_switch", [("next_pid", "prev_pid")], filter=condition)
    fewer = command("latency", "sched:sched_switch", "sched:sched_switch", "work", "--key", "next_pid=prev_pid", "-f", condition)
    expect((len(some), int(some["ns"].sum()), some.counts["left_out"]), (fewer["pairs"], fewer["all"]["sum"], fewer["left_out"]))
    heat = trace.heat(start="sched:sched_switch", end="sched:sched_switch", keys=[("next_pid", "prev_pid")], filter=condition)
    expect(int(heat.count.sum()), fewer["pairs"])
    heat = trace.heat(start="sched:sched_switch", end="sched:sched_switch", keys=[("next_pid", "prev_pid")])
    expect(int(heat.count.sum()), theirs["pairs"])
    sizes = trace.columns("libc:malloc", ["size"], losses=True)
    heat = trace.heat("libc:malloc/size", columns=64, precision=4)
    expect(heat.count.sum(axis=0)[heat.high <= 41].sum(), (sizes["size"][sizes["lost"] == 0] <= 41).sum())
    if pandas is not None:
        frame = trace.frame("sched:sched_switch", ["ts", "prev_comm"], losses=True)
        expect(frame["lost"].sum(), 1234)
        expect(str(frame["prev_comm"].dtype), "category")

    # Errors are sentences.
    for call, text in [
        (lambda: ringside.open("nothing"), "or instance nothing"),
        (lambda: trace.columns("no:such", ["ts"]), "none of these events"),
        (lambda: trace.columns("libc:malloc", ["fd"]), "libc:malloc has size, ptr"),
        (lambda: trace.columns("libc:*", ["size"]), "take the columns of one event"),
        (lambda: ringside.open("kinds").columns("net:packet_in", ["mac"]), "is an array"),
        (lambda: ringside.open("work", filter="size >"), "expected a value"),
        (lambda: trace.hist(["a", "b", "c"]), "one key or two"),
        (lambda: trace.heat("task"), "a text"),
        (lambda: trace.heat("libc:malloc/size", columns=2**62), "1 to 65536 columns"),
        (lambda: trace.heat("libc:malloc/size", precision=99), "a precision of 0 to 16"),
    ]:
        try:
            call()
            expect("no error", text)
        except (ringside.Error, ValueError) as e:
            expect(text in str(e), True, str(e))
    try:
        next(iter(trace))["nothing"]
        expect("no error", "KeyError")
    except KeyError:
        pass


def mixed():
    """Fields of one name in several events, names that answers have, values at the ends of their types."""
    trace = ringside.open("mixed")
    lines = report("mixed")
    both = trace.columns("app:small,app:large", ["x", "f"])
    there = [line["fields"] for line in lines if line["event"] in ("app:small", "app:large")]
    expect(both["x"].tolist(), [fields["x"] for fields in there])
    expect(both["f"].tolist(), [int(fields["f"]) for fields in there])
    expect(trace.columns("app:small", ["x", "f"])["x"].dtype, numpy.dtype("uint32"))
    expect(trace.columns("app:small", ["f"])["f"].dtype, numpy.dtype("bool"))
    # A field comes before a column of the answer.
    expect(trace.columns("app:stat", ["lost"])["lost"].tolist(), [1000, 1001, 1002])
    expect("has a field lost" in said(lambda: trace.columns("app:stat", ["lost"], losses=True)), True)
    expect(trace.columns("app:stat", ["count"], losses=True)["lost"].tolist(), [0, 0, 0])
    expect((len(trace.losses()), sorted(trace.losses())), (0, ["cpu", "lost", "ring", "ts"]))
    expect("column of counts" in said(lambda: trace.hist("count")), True)
    expect(trace.hist("app:stat/count")["app:stat/count"].tolist(), [2000, 2001, 2002])
    expect("a column of the answer" in said(lambda: trace.latency("app:stat", "app:text", by="ns")), True)
    expect(len(trace.latency("app:stat", "app:text", by="app:stat/ns")), 3)
    # Which file an event is of.
    expect({e.source for e in trace}, {"program"})
    two = ringside.open(["mixed", "states"])
    expect([e.source for e in two], [line["buffer"] for line in report("mixed", "states")])
    expect(two.columns(names=["source"])["source"].texts().tolist(), [e.source for e in two if not e.lost])
    # Keys.
    large = trace.hist("app:large/x")["app:large/x"]
    expect((large.dtype, sorted(large.tolist())), (numpy.dtype("uint64"), [2**63, 2**63 + 1, 2**63 + 2]))
    real = trace.hist("app:real/d")["app:real/d"]
    expect((real.dtype, sorted(real[~numpy.isnan(real)].tolist()), len(real)), (numpy.dtype("float64"), [0.5, 1.5], 3))
    text = trace.columns("app:text", ["s", "ts"])
    expect((len(text), text["s"].values, text["s"].texts().tolist()), (3, ["\ufffd", "ok"], ["\ufffd", "\ufffd", "ok"]))
    if pandas is not None:
        expect(trace.frame("app:text", ["s"])["s"].tolist(), ["\ufffd", "\ufffd", "ok"])
    # Arguments.
    some = ringside.open("mixed", events="app:small,app:large", filter=None, time=None)
    expect(len(some.columns("app:*", ["x"])), 6)
    expect(len(some.columns("app:small", ["x"])), 3)
    expect("among those that open() has chosen" in said(lambda: some.columns("app:stat", ["ns"])), True)
    expect("filter is a text" in said(lambda: ringside.open("mixed", filter=5)), True)
    for most in (0, -1):
        expect("at least one key" in said(lambda: trace.hist("event", most_keys=most)), True)
    for choice in ({"start": "app:small"}, {"start": "app:small", "end": "app:large"}, {"keys": "tid"}):
        expect("a value, or a start and an end" in said(lambda: trace.heat("app:small/x", **choice)), True)
    expect("a value, or a start and an end" in said(lambda: trace.heat(start="app:small")), True)
    os.rename("mixed", b"mixed\xff")
    expect(len(list(ringside.open(b"./mixed\xff"))), 15)
    expect(len(list(ringside.open(os.fsdecode(b"./mixed\xff")))), 15)
    # Following ends where nothing more is written.
    expect(len(list(ringside.follow(b"./mixed\xff"))), 15)


def stacks():
    """Columns, keys and groups of stacks, and those of events."""
    trace = ringside.open("stacks")
    rows = [line for line in report("stacks") if line["event"] == "app:work"]
    expect(len(rows) == 100 and all(line["stack"] for line in rows), True, rows[:1])
    expect([e.stack for e in trace if e.name == "app:work"], [line["stack"] for line in rows])
    table = trace.columns("app:work", ["stack", "stack[0]", "ts"])
    expect(table["stack"].texts().tolist(), [";".join(line["stack"]) for line in rows])
    expect(table["stack[0]"].texts().tolist(), [line["stack"][0] for line in rows])
    for key in ("app:work/stack[0]", "app:work/stack"):
        found = trace.hist(key)
        mine = dict(zip(found[key].texts(), found["count"].tolist()))
        theirs = [line["stack"][0] if "[" in key else ";".join(line["stack"]) for line in rows]
        expect(mine, {text: theirs.count(text) for text in set(theirs)})
    expect(set(trace.latency("app:work", "app:work", by="stack[0]")["stack[0]"].values), set(line["stack"][0] for line in rows[1:]))
    expect("is a stack" in said(lambda: trace.heat("app:work/stack")), True)


def missing():
    """Refused and unrecorded events, and a file that lacks some, beside the numbers of `report`."""
    def change(**counts):
        meta = json.loads(pathlib.Path("work/meta.json").read_text())
        meta["account"]["unrecorded"] = counts.get("unrecorded", 0)
        meta["account"]["refused"]["full"] = counts.get("refused", 0)
        meta["rings"][0]["events"] += counts.get("events", 0)
        pathlib.Path("work/meta.json").write_text(json.dumps(meta))

    def said():
        return subprocess.run([binary, "report", "work"], capture_output=True, text=True).stderr

    change(refused=70, unrecorded=5)
    expect("1,309 events were lost" in said(), True, said())
    trace = ringside.open("work")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table, with_losses = trace.columns(None, ["ts"]), trace.columns(None, ["ts"], losses=True)
    expect([str(w.message).split()[0] for w in caught], ["1309", "75"])
    # Each answer tells losses and doubts at the line that asked for it.
    for ask in (
        lambda t: t.columns(None, ["ts"]),
        lambda t: t.frame(None, ["ts"]),
        lambda t: t.losses(),
        lambda t: t.hist("task"),
        lambda t: t.latency("libc:malloc", "libc:read"),
        lambda t: t.heat("libc:malloc/size"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask(trace)
        expect([(w.category, w.filename) for w in caught], [(ringside.LossWarning, __file__)], inspect.getsource(ask))
    if pandas is not None:
        expect(trace.frame(None, ["ts"]).attrs, {"lost": 1309, "problems": []})
    expect((table.lost, table.problems, with_losses.lost, trace.hist("task").lost), (1309, [], 1309, 1309))
    events = iter(trace)
    next(events)
    expect(events.lost, 0)
    expect(sum(e.lost for e in events), 1234)
    expect((events.lost, events.problems), (1309, []))
    change(events=2)
    expect("2 events that were recorded are not in the files" in said(), True, said())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = trace.hist("task")
    expect([str(w.message) for w in caught][1:], table.problems)
    expect([problem.split(" not in")[0] for problem in table.problems], ["2 events that were recorded are"])
    # A file that was cut is told once.
    os.truncate("work/ring0.raw", 4096)
    problems = trace.hist("task").problems
    expect(sum("was cut" in problem for problem in problems), 1, problems)
    expect(len(set(problems)), len(problems), problems)
    # A thread's name with control characters.
    meta = json.loads(pathlib.Path("huge/meta.json").read_text())
    meta["rings"][0]["task"] = "a\n\x1b[2Jb"
    pathlib.Path("huge/meta.json").write_text(json.dumps(meta))
    line = str(next(iter(ringside.open("huge"))))
    expect("\n" in line or "\x1b" in line, False, repr(line))


def live():
    """A program writes while two threads follow it; the GIL is free meanwhile."""
    name = "lively"
    subprocess.run([build / "example_01_write"], env={**os.environ, "RINGSIDE_INSTANCE": name}, check=True)
    there = [line["event"] for line in report(name)]
    expect(len(there) > 5, True)
    expect([e.name for e in ringside.open(name)], there)
    # What is written while two threads wait for it comes to both, and this one goes on meanwhile. The timeout is for a failure.
    got, other = [], []
    net = [event for event in there if event.startswith("net:")]

    def take(into, wanted, **choice):
        for event in ringside.follow(name, timeout=100, **choice):
            into.append(event.name)
            if len(into) == 2 * len(wanted):
                break

    threads = [threading.Thread(target=take, args=(got, there)), threading.Thread(target=take, args=(other, net), kwargs={"events": "net:*"})]
    for thread in threads:
        thread.start()
    while len(got) < len(there) or len(other) < len(net):
        time.sleep(0.001)
    subprocess.run([build / "example_01_write"], env={**os.environ, "RINGSIDE_INSTANCE": name}, check=True)
    for thread in threads:
        thread.join()
    expect(got, there + there)
    expect(other, net + net)
    began = time.monotonic()
    expect(len(list(ringside.follow(name, timeout=0.2))), 2 * len(there))
    expect(time.monotonic() - began >= 0.2, True)
    # A timeout without an end.
    expect(next(ringside.follow(name, timeout=float("inf"), look_ahead=0.01)).name, there[0])
    for bad in (0, -1, float("nan")):
        try:
            ringside.follow(name, timeout=bad)
            expect("no error", "ValueError")
        except ValueError:
            pass
    # What writes only for its reader has nothing to look at.
    writer = subprocess.Popen([build / "example_03_remote", "./w"])
    try:
        while not os.path.exists("w"):
            time.sleep(0.02)
        refused = "Connection refused"  # until it listens
        while "Connection refused" in refused:
            refused = said(lambda: ringside.open([name, "w"]))
        expect("read it with ringside.follow()" in refused, True)
        expect(next(ringside.follow("w", timeout=100)).lost, 0)
    finally:
        writer.kill()
        writer.wait()
    # Ctrl-C ends a wait without a timeout.
    waits = subprocess.Popen([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(build / 'python')!r}); import ringside\nprint('go', flush=True)\nfor e in ringside.follow({name!r}): pass"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waits.stdout.readline()
    time.sleep(0.3)
    waits.send_signal(2)
    expect("KeyboardInterrupt" in waits.communicate(timeout=60)[1], True)


def interrupts():
    """A signal ends a search and loses no event; threads that look at events meanwhile get their turn."""

    def alarm(*_):
        raise TimeoutError("alarm")

    signal.signal(signal.SIGALRM, alarm)
    # The last event alone passes. How far the search has come when the signal arrives is chance, so it has some tries.
    last, event = report("states")[-1]["ts"], None
    wheres = ["mixed"] + [f"states{n}" for n in range(200)]  # the same files, as recordings of their own
    for n, where in enumerate(wheres[1:]):
        os.mkdir(where)
        for file in os.listdir("states"): os.link(f"states/{file}", f"{where}/{file}")
        meta = dict(json.loads(pathlib.Path("states/meta.json").read_text()), start_ns=1 + n)
        os.remove(f"{where}/meta.json")
        pathlib.Path(f"{where}/meta.json").write_text(json.dumps(meta))
    for n in range(20):
        found = iter(ringside.open(wheres, filter=f"ts == {last}"))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002 * (n + 1))
            next(found)
            signal.setitimer(signal.ITIMER_REAL, 0)
            continue
        except TimeoutError:
            pass
        event = next(found, None)  # it goes on
        if event is not None:
            break
    expect(event is not None and event.ts, last)
    # A wait goes on, too.
    name = "waited-for"
    subprocess.run([build / "example_01_write"], env={**os.environ, "RINGSIDE_INSTANCE": name}, check=True)
    waits = ringside.follow(name, events="no:such")
    for _ in range(2):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            expect(f"an event: {next(waits)}", "TimeoutError")
        except TimeoutError:
            pass
    # Another thread searches on in the trace of this event.
    for _ in range(20):
        found = iter(ringside.open(wheres, filter="event == stat && ns == 3000"))
        event, texts = next(found), 0
        thread = threading.Thread(target=lambda: list(found))
        thread.start()
        while thread.is_alive():
            str(event)
            texts += 1
        thread.join()
        if texts > 1:
            break
    expect(texts > 1, True)


def kernel():
    """Live events of the kernel, more than can be read: the timeout ends it, and threads have their names."""
    if os.geteuid() != 0 or not os.path.isdir("/sys/kernel/tracing/instances"):
        skip("the kernel's events are for root, where tracefs is mounted")
    writer = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=1"], stderr=subprocess.DEVNULL)
    try:
        names = set()
        events = ringside.follow(kernel="raw_syscalls:sys_enter", filter=f"common_pid == {writer.pid}", timeout=1)
        for e in events:
            if e.lost == 0:
                names.add(e.task)
                if e.ts % 4 == 0:
                    time.sleep(0.00005)  # it is slower than the writer: there is always more
        expect(names, {"dd"})
    finally:
        writer.kill()
        writer.wait()


def notebook():
    for package in ("nbconvert", "ipykernel", "matplotlib", "pandas"):
        try:
            __import__(package)
        except ImportError:
            skip(f"the Python package {package} is not installed")
    subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.timeout=300", "--output", folder.name + "/done.ipynb", top / "examples/09_notebook.ipynb"],
                   check=True, env={**os.environ, "PYTHONPATH": str(build / "python"), "RINGSIDE_TRACE": folder.name + "/work", "HOME": folder.name, "JUPYTER_PLATFORM_DIRS": "1"})
    done = json.loads(pathlib.Path("done.ipynb").read_text())
    plots = [output for cell in done["cells"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    expect(len(plots), 3)
    expect(all(len(plot["data"]["image/png"]) > 5000 for plot in plots), True)


def writing():
    """A program that writes, under record: what it wrote is what the commands and the package read."""
    pathlib.Path("app.py").write_text("""
import asyncio, enum, logging, os, sys, threading, warnings
import ringside
assert "numpy" not in sys.modules  # writing alone needs no NumPy

class State(enum.IntEnum):
    open = 1
    paid = 2

class Loud:
    def __str__(self):
        raise KeyError

order = ringside.event("shop", "order", id=int, customer=str, total=float, state=State, big="uint64", small="int8", class_=bool)
again = ringside.event("shop", "order", id=int, customer=str, total=float, state=State, big="uint64", small="int8", class_=bool)
assert order.name == "shop:order" and order.enabled and again.fields == order.fields
order(1, "Ada", 2.5, State.paid, 2**64 - 1, -128, True)
again(2, customer="Gr\\xe4ce", total=-1, state=7, big=0, small=127, class_=[])
order(3, None, 1e300, 1, 1, 1, 0)
order(4, "\\udcff", 0, 1, 1, 1, 0)
order(5, "long" * 5000, 0, 1, 1, 1, 0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for wrong in (("x", "", 0, 1, 1, 1, 0), (2**63, "", 0, 1, 1, 1, 0), (1, Loud(), 0, 1, 1, 1, 0), (1, "", "", 1, 1, 1, 0), (1, "", 0, 1, -1, 1, 0), (1, "", 0, 1, 1, 128, 0)):
        order(*wrong)
assert len(caught) == 6 and all("came into no ring" in str(w.message) for w in caught), caught
for wrong, named in (((1,), {}), ((1, 2, 3, 4, 5, 6), {"nope": 1}), ((1, 2, 3, 4, 5, 6), {"id": 1})):
    try:
        order(*wrong, **named)
    except TypeError:
        continue
    raise SystemExit("no TypeError")
for declare in (lambda: ringside.event("a b", "c"), lambda: ringside.event("a", "c", x=complex), lambda: ringside.event("a", "c", **{"b-": int}),
                lambda: ringside.event("a", "c", **{f"f{i}": int for i in range(33)})):
    try:
        declare()
    except (TypeError, ValueError):
        continue
    raise SystemExit("no error")

@ringside.span("pay")
def pay():
    ringside.instant("paid")

with ringside.span("checkout") as outer:
    pay()
    with ringside.span("card", track="bank"):
        ringside.counter("queue", 3)
        ringside.counter("load", 0.25)
        ringside.process_counter("open", 2)
    try:
        outer.__enter__()
    except RuntimeError:
        pass
    else:
        raise SystemExit("entered twice")

async def job():
    with ringside.span("job"):
        await asyncio.sleep(0.01)

@ringside.span("main")
async def main():
    await asyncio.gather(*(asyncio.create_task(job(), name=f"job-{i}") for i in range(3)))

asyncio.run(main())

async def namesake(n):
    with ringside.span(f"namesake {n}"):
        await asyncio.sleep(0.001)
    with ringside.span(f"again {n}"):
        await asyncio.sleep(0.001)
    asyncio.current_task().set_name("renamed")
    with ringside.span(f"renamed {n}"):
        await asyncio.sleep(0.001)

async def namesakes():
    await asyncio.gather(*(asyncio.create_task(namesake(n), name="same") for n in range(3)))

asyncio.run(namesakes())

@ringside.span("steps", track="generators")
def steps(first):
    assert (yield first) == "sent"
    try:
        yield 2
    except KeyError:
        yield 3
    return "done"

def all_steps():
    assert (yield from steps(7)) == "done"

running = all_steps()
assert next(running) == 7 and running.send("sent") == 2 and running.throw(KeyError()) == 3 and list(running) == []
closed = steps(1)
next(closed)
closed.close()
raising = steps(1)
next(raising)
try:
    raising.send("other")
except AssertionError:
    pass
else:
    raise SystemExit("no AssertionError")

@ringside.span("asteps", track="generators")
async def asteps():
    try:
        for i in range(2):
            await asyncio.sleep(0.001)
            yield i
    finally:
        ringside.instant("last", track="generators")

async def all_asteps():
    assert [i async for i in asteps()] == [0, 1]
    closed = asteps()
    assert await closed.asend(None) == 0
    await closed.aclose()

asyncio.run(all_asteps())
ringside.async_begin("request", 7)
worker = threading.Thread(target=ringside.async_end, args=("request", 7))
worker.start()
worker.join()
log = logging.getLogger("shop")
log.addHandler(ringside.LogHandler())
log.setLevel(logging.DEBUG)
log.warning("%s is slow", "Ada")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("oops")
child = os.fork()
if child == 0:
    order(6, "child", 0, 1, 1, 1, 0)
    os._exit(0)
os.waitpid(child, 0)
""")
    recorded = subprocess.run([binary, "record", "-o", "written", "--", sys.executable, "-B", "app.py"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(build / "python")})
    expect(recorded.returncode, 0, recorded.stderr)
    expect("lost 6 (that came into no ring)" in recorded.stderr, True, recorded.stderr)
    rows = [(e.name, e.fields) for e in ringside.open("written")]
    orders = [fields for name, fields in rows if name == "shop:order"]
    expect([o["id"] for o in orders], [1, 2, 3, 4, 5, 6])
    expect(orders[0], {"id": 1, "customer": "Ada", "total": 2.5, "state": "paid", "big": 2**64 - 1, "small": -128, "class": True})
    expect(orders[1], {"id": 2, "customer": "Gr\xe4ce", "total": -1.0, "state": 7, "big": 0, "small": 127, "class": False})
    expect((orders[2]["customer"], orders[2]["total"], orders[5]["customer"]), ("None", 1e300, "child"))
    expect(len(orders[4]["customer"]) > 3800 and set(orders[4]["customer"]) == set("long"), True)
    spans = [(f["track_event_type"], f["slice_name"], f.get("track_name")) for name, f in rows if name in ("ringside:span", "ringside:track_span")]
    namesakes = [span for span in spans if span[2] and span[2].startswith(("same", "renamed"))]
    spans = [span for span in spans if span not in namesakes]
    for name, words in ("same", ("namesake", "again")), ("renamed", ("renamed",)):
        tracks = [sorted({track for _, what, track in namesakes if what in [f"{word} {n}" for word in words]}) for n in range(3)]
        expect([len(of_task) for of_task in tracks], [1, 1, 1], tracks)  # a task keeps its track
        expect(len({of_task[0] for of_task in tracks}), 3, tracks)  # and shares it with no other
        expect(all(of_task[0] == name or of_task[0].startswith(name + " (") for of_task in tracks), True, tracks)
    generators = [span[:2] for span in spans if span[2] == "generators"]
    spans = [span for span in spans if span[2] != "generators"]
    expect(generators[:16], [("B", "steps"), ("E", "steps")] * 8)  # 4 of a whole one, 2 of one that is closed, 2 of one that raises
    step, last = [("B", "asteps"), ("E", "asteps")], [("B", "asteps"), ("I", "last"), ("E", "asteps")]
    expect(generators[16:], step * 2 + last + step + last)
    expect(spans[:7], [("B", "checkout", None), ("B", "pay", None), ("I", "paid", None), ("E", "pay", None), ("B", "card", "bank"), ("E", "card", "bank"), ("E", "checkout", None)])
    expect(sorted(spans[7:], key=str), sorted([(t, "job", f"job-{i}") for i in range(3) for t in "BE"] + [(t, "main", "Task-1") for t in "BE"], key=str))
    expect([f for name, f in rows if name == "ringside:counter"], [{"counter_value": 3, "track_name": "queue"}])
    expect([f for name, f in rows if name == "ringside:real_counter"], [{"counter_value": 0.25, "track_name": "load"}])
    expect([f for name, f in rows if name == "ringside:process_counter"], [{"counter_value": 2.0, "track_name": "open", "scope_tgid": 0}])
    expect([(f["track_event_type"], f["async_id"]) for name, f in rows if name == "ringside:async_span"], [("B", 7), ("E", 7)])
    said_by_log = subprocess.run([binary, "log", "written"], check=True, capture_output=True, text=True).stdout
    expect("WARN" in said_by_log and "app.py:" in said_by_log and "shop: Ada is slow" in said_by_log and "ZeroDivisionError" in said_by_log, True, said_by_log)

    # Control from inside.
    ringside.attach("own", events="own:a", ring_bytes=1 << 16, mode="discard")
    a, b = ringside.event("own", "a", n=int), ringside.event("own", "b")
    expect((os.path.basename(ringside.instance()), a.enabled, b.enabled), ("own", True, False))
    ringside.enable("own:b")
    ringside.disable("own:a")
    expect((a.enabled, b.enabled), (False, True))
    a(1), b()
    os.environ["PATH"] = f"{build}:{os.environ['PATH']}"
    ringside.save(pathlib.Path("own.data"))
    expect([e.name for e in ringside.open("own.data")], ["own:b"])
    expect(type(said_by(lambda: ringside.enable(""))), OSError)
    expect(type(said_by(lambda: ringside.attach("other"))), OSError)
    ringside.detach()
    expect((ringside.instance(), b.enabled), (None, False))
    expect(type(said_by(lambda: ringside.save("x"))), FileNotFoundError)


def said_by(call):
    """The error itself."""
    try:
        call()
    except Exception as error:
        return error


{"doctests": doctests, "answers": answers, "mixed": mixed, "stacks": stacks, "missing": missing, "live": live, "interrupts": interrupts, "kernel": kernel, "notebook": notebook, "writing": writing}[what]()
sys.exit(1 if failed else 0)
