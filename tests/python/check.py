#!/usr/bin/env python3
"""The Python package: its doctests, and its answers beside those of the commands.
usage: check.py BUILD_DIR doctests|answers|missing|live|notebook. Exit code 77, and a reason, where something is missing."""
import ast
import doctest
import inspect
import json
import os
import pathlib
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


def doctests():
    if pandas is None:
        skip("python3-pandas is not installed")
    if int(numpy.__version__.split(".")[0]) >= 2:
        numpy.set_printoptions(legacy="1.25")  # 64, not np.int64(64)
    found = doctest.testmod(ringside, optionflags=doctest.ELLIPSIS)
    expect(found.failed, 0)
    expect(found.attempted > 20, True, f"{found.attempted} examples")
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
                args = [a.arg for a in function.args.args + function.args.kwonlyargs]
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


def missing():
    """Refused and unrecorded events, and a file that lacks some, beside the numbers of `report`."""
    def change(**counts):
        meta = json.loads(pathlib.Path("work/meta.json").read_text())
        meta.setdefault("missing", {}).update({name: n for name, n in counts.items() if name != "events"})
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
    expect((table.lost, table.problems, with_losses.lost, trace.hist("task").lost), (1309, [], 1309, 1309))
    events = iter(trace)
    next(events)
    expect(events.lost, 0)
    expect(sum(e.lost for e in events), 1234)
    expect((events.lost, events.problems), (1309, []))
    change(events=2)
    expect("2 events that were recorded are not in the files" in said(), True, said())
    table = trace.hist("task")
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
    # Ctrl-C ends a wait without a timeout.
    waits = subprocess.Popen([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(build / 'python')!r}); import ringside\nprint('go', flush=True)\nfor e in ringside.follow({name!r}): pass"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waits.stdout.readline()
    time.sleep(0.3)
    waits.send_signal(2)
    expect("KeyboardInterrupt" in waits.communicate(timeout=60)[1], True)


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


{"doctests": doctests, "answers": answers, "missing": missing, "live": live, "notebook": notebook}[what]()
sys.exit(1 if failed else 0)
