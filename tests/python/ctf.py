#!/usr/bin/env python3
"""CTF: what babeltrace2 reads of an export, and of our source, beside `report --json`, event by event.
And the other way: a CTF trace as WHERE, ours and LTTng-UST's.
usage: ctf.py BUILD_DIR export|source|live|back|made|abroad|lttng. Exit code 77, and a reason, where something is missing."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from made_ctf import ticks, write_ctf


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


build, what = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
plugin = build / "babeltrace2"
if not (plugin / "babeltrace-plugin-ringside.so").exists():
    skip("the plugin for babeltrace2 was not built: it needs libbabeltrace2-dev")
if not shutil.which("babeltrace2"):
    skip("babeltrace2 is not installed")
try:
    import bt2
except ImportError:
    skip("python3-bt2 is not installed")
folder = tempfile.TemporaryDirectory(prefix="ringside-ctf-")
os.environ["RINGSIDE_ROOT"] = folder.name + "/root"
os.mkdir(folder.name + "/root")
os.chdir(folder.name)
binary = str(build / "ringside")
subprocess.run([build / "tests/browser_recordings", "."], check=True)
subprocess.run([binary, "record", "-q", "-o", "kinds", "--", build / "example_01_write"], check=True)
failed = 0


def expect(this, that, about=""):
    global failed
    if this != that:
        failed += 1
        print(f"line {sys._getframe(1).f_lineno}: {about} {str(this)[:700]} is not {str(that)[:700]}")


def run(*command, code=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    expect(done.returncode, code, " ".join(map(str, command)) + ": " + done.stderr)
    return done


def report(*arguments):
    """(events, losses): events sorted by what they are, because those of one moment come in any order."""
    events, losses = [], []
    for line in run(binary, "report", "--json", *arguments).stdout.splitlines():
        line = json.loads(line)
        if "lost" in line:
            losses.append(line["lost"])
        else:
            events.append((line["ts"], line["event"], -1 if line["cpu"] is None else line["cpu"], line["tid"], line["pid"], line["task"], list(line["fields"].values())))
    return sorted(events, key=repr), losses


def value(field):
    if isinstance(field, bt2._EnumerationFieldConst):
        try:
            return field.labels[0]
        except (AssertionError, IndexError):  # there is none; bt2 2.0 says so in both ways
            return int(field)
    if isinstance(field, bt2._ArrayFieldConst):
        return [value(one) for one in field]
    if isinstance(field, bt2._StringFieldConst):
        return str(field)
    return float(field) if isinstance(field, bt2._RealFieldConst) else int(field)


def messages_of(spec):
    all_of_them = bt2.TraceCollectionMessageIterator(spec)
    while True:
        try:
            yield next(all_of_them)
        except bt2.TryAgain:
            time.sleep(0.01)
        except StopIteration:
            return


def read(spec):
    """The same. sink.ctf.fs puts the lengths of arrays in front of them."""
    events, losses, times = [], [], []
    for message in messages_of(spec):
        if type(message) is bt2._EventMessageConst:
            event, context = message.event, message.event.common_context_field
            fields = [value(field) for name, field in event.payload_field.items() if not (name.startswith("__") and name.endswith("_len"))] if event.payload_field is not None else []
            times.append(message.default_clock_snapshot.value)
            events.append((times[-1], event.name, *(int(context[name]) for name in ("cpu", "tid", "pid")), str(context["task"]), fields))
        elif type(message) is bt2._DiscardedEventsMessageConst:
            losses.append(message.count)
            begin, end = message.beginning_default_clock_snapshot.value, message.end_default_clock_snapshot.value
            expect(begin <= end, True)
    expect(times, sorted(times))
    return sorted(events, key=repr), losses


def from_source(**params):
    return bt2.ComponentSpec(next(p for p in bt2.find_plugins_in_path(str(plugin)) if p.name == "ringside").source_component_classes["rings"], params)


def same(mine, theirs, about):
    expect(len(mine[0]), len(theirs[0]), about)
    for a, b in zip(mine[0], theirs[0]):
        expect(a, b, about)
    expect(mine[1], theirs[1], about)


def export():
    before = set(os.listdir("."))
    for where, choice in (("work", []), ("work", ["-e", "libc:malloc", "--filter", "size > 40"]), ("kinds", []), ("random", [])):
        shutil.rmtree("out.ctf", ignore_errors=True)
        done = run(binary, "export", where, *choice, "--to", "out.ctf")
        theirs = report(where, *choice)
        expect(f"{len(theirs[0]):,} events" in done.stderr, True, done.stderr)
        lost = sum(theirs[1])
        expect(f"{lost:,} lost" in done.stderr, lost != 0, done.stderr)
        same(read("out.ctf"), theirs, " ".join([where, *choice]))
        text = run("babeltrace2", "--clock-cycles", "--no-delta", "out.ctf")
        names = sorted((int(line.split("]")[0][1:]), line.split("] ")[1].split(": {")[0].split()[-1]) for line in text.stdout.splitlines())
        expect(names, sorted((event[0], event[1]) for event in theirs[0]))
        expect([int(n) for n in re.findall(r"discarded (\d+) (?:trace )?events", text.stderr)], theirs[1], text.stderr)
    # It never takes the place of something else, and leaves nothing behind.
    expect("is there already" in run(binary, "export", "work", "--to", "out.ctf", code=1).stderr, True)
    run(binary, "export", "nothing", "--to", "none.ctf", code=1)
    run(binary, "export", "empty", "--to", "none.ctf", code=1)
    run(binary, "export", "work", "--to", "none.ctf", "--only", "kernel", code=2)
    os.mkdir("dir")
    run(binary, "export", "work", "--to", "dir/")
    same(read("dir"), report("work"), "a directory that was empty")
    expect(set(os.listdir(".")) - before, {"dir", "out.ctf"})


def source():
    for where in ("work", "random"):
        same(read(from_source(inputs=[where])), report(where), where)
    same(read(from_source(inputs="kinds", events=["net:*"])), report("kinds", "-e", "net:*"), "some of kinds")
    same(read(from_source(inputs=["work"], filter="size > 40")), report("work", "--filter", "size > 40"), "filter")
    run(binary, "export", "work", "--to", "work.dat")
    same(read(from_source(inputs=["work.dat"])), report("work.dat"), "a trace.dat")
    # Through the command, as a graph of babeltrace2's.
    text = run("babeltrace2", f"--plugin-path={plugin}", "--component=source.ringside.rings", '--params=inputs=["kinds"]', "--component=sink.text.details")
    expect(text.stdout.count("net:packet_in"), 1 + 3, text.stdout)
    for params, words in (({"inputs": ["nothing"]}, "or instance nothing"), ({"input": ["work"]}, "there is no parameter"), ({"inputs": 3}, "wrong type"), ({"inputs": ["work"], "events": [""]}, "")):
        try:
            read(from_source(**params))
            expect("no error", words)
        except bt2._Error as error:
            expect(words in str(error), True, str(error))


def live():
    environment = {**os.environ, "RINGSIDE_INSTANCE": "lively"}
    subprocess.run([build / "example_01_write"], env=environment, check=True)
    once = report("lively")
    same(read(from_source(inputs=["lively"])), once, "what there is now")
    # What is written while it follows comes, too.
    times, written, deadline = [], False, time.monotonic() + 100
    messages = bt2.TraceCollectionMessageIterator(from_source(inputs=["lively"], follow=True))
    while len(times) < 2 * len(once[0]) and time.monotonic() < deadline:
        try:
            message = next(messages)
        except bt2.TryAgain:
            if len(times) == len(once[0]) and not written:
                subprocess.run([build / "example_01_write"], env=environment, check=True)
                written = True
            time.sleep(0.01)
            continue
        if type(message) is bt2._EventMessageConst:
            times.append(message.default_clock_snapshot.value)
    expect(times, [event[0] for event in report("lively")[0]])
    expect(len(times), 2 * len(once[0]))
    # It ends after as many seconds.
    expect(len(read(from_source(inputs=["lively"], follow=0.3))[0]), 2 * len(once[0]))


def back():
    """Our own export as WHERE is what was exported."""
    for where in ("work", "random", "kinds"):
        run(binary, "export", where, "--to", where + ".ctf")
        same(report(where + ".ctf"), report(where), where)
    expect(run(binary, "report", "kinds.ctf", "kinds").stdout.count("packet_in"), 6)
    expect(sum(report("work.ctf", "-e", "libc:malloc", "--filter", "size > 40")[1]), 1234)
    # A CTF trace is read by our plugin, too, in babeltrace2.
    run(binary, "export", "kinds.ctf", "--to", "twice.ctf")
    same(read("twice.ctf"), report("kinds"), "a CTF trace of a CTF trace")
    same(read(from_source(inputs=["kinds.ctf"])), report("kinds"), "a CTF trace through our source")
    # Also where they are installed, wherever that is.
    for file, place in ((binary, "prefix/bin"), (plugin / "babeltrace-plugin-ringside.so", "prefix/lib/babeltrace2/plugins")):
        os.makedirs(place)
        shutil.copy(file, place)
    run("prefix/bin/ringside", "export", "kinds.ctf", "--to", "installed.ctf")
    same(read("installed.ctf"), report("kinds"), "a CTF trace of a CTF trace, installed")
    # Several threads read what one conversion made.
    wrapper = pathlib.Path("bin/babeltrace2")
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho once >> {folder.name}/conversions\nexec {shutil.which("babeltrace2")} "$@"\n')
    wrapper.chmod(0o755)
    os.environ["PATH"] = f"{folder.name}/bin:{os.environ['PATH']}"
    commands = (("report",), ("hist", "event"), ("latency", "libc:malloc", "libc:malloc"))
    for command in commands:
        one, several = (run(binary, *command, "work.ctf", "--jobs", jobs).stdout for jobs in (1, 4))
        expect(several, one, " ".join(command))
    expect(pathlib.Path("conversions").read_text().count("once"), 2 * len(commands))
    os.mkdir("damaged")
    pathlib.Path("damaged/metadata").write_text("/* CTF 1.8 */ nonsense")
    expect("babeltrace2 cannot read the CTF trace damaged" in run(binary, "report", "damaged", code=1).stderr, True)
    os.environ["TMPDIR"] = folder.name + "/tmp"
    os.mkdir("tmp")
    run(binary, "report", "kinds.ctf")
    run(binary, "report", "damaged", code=1)
    expect(os.listdir("tmp"), [])


def lines_of(*arguments):
    return [json.loads(line) for line in run(binary, "report", "--json", *arguments).stdout.splitlines()]


def made():
    """Traces of other tracers."""
    made_losses()
    made_clocks()
    made_fields()


def made_losses():
    # Lost packets, and events of which the tracer tells no number, are gaps of at least one, and doubts.
    write_ctf("packets", [(0, [(0, 0, ticks(1000, 2000)), (5, 0, ticks(3000)), (6, 0, ticks(5000))])])
    write_ctf("unknown", [(0, [(0, 7, ticks(1000, 2000)), (1, 9, ticks(3000))])])
    for where, gaps, words in (
        ("packets", [(2, 1)], "stream0: 4 packets of the tracer's are missing, with any number of events"),
        ("unknown", [(0, 1), (3, 2)], "stream0: the tracer may have discarded events, and their number is not known"),
    ):
        expect([(n, line["lost"]) for n, line in enumerate(lines_of(where)) if "lost" in line], gaps, where)
        expect(words in run(binary, "report", where, "--fail-on-loss", code=3).stderr, True)
        expect("none lost" in run(binary, "hist", "event", where).stdout, False)
        answer = json.loads(run(binary, "top", where, "--once", "--json").stdout)
        expect((answer["lost"], answer["proved"]), (sum(n for _, n in gaps), False))
    # A number that no tracer reaches is a counter that went back.
    write_ctf("back", [(0, [(0, 9, ticks(1000)), (1, 3, ticks(3000))])])
    expect([line["lost"] for line in lines_of("back") if "lost" in line], [1, 1])


def made_clocks():
    # The offsets of clocks count.
    ms = 1000000
    streams = [(0, [(0, 0, ticks(*(n * 100 * ms for n in range(4))))]), (1, [(0, 0, ticks(*(50050000 + n * 100000 for n in range(4))))])]
    write_ctf("offsets", streams, [{"offset_s": 100}, {"freq": 1000000, "offset_s": 50}])
    expect([(line["ts"], line["cpu"]) for line in lines_of("offsets")], [(n * 50 * ms, n % 2) for n in range(8)])
    # The first event's clock is the one that counts, so no time is negative; neither is one of a clock that began later.
    write_ctf("offsets", [(0, [(0, 0, ticks(7, 2000000007))]), (1, [(0, 0, ticks(5))])], [{"offset_s": -3}, {"offset": 999999999, "offset_s": -3}])
    expect([line["ts"] for line in lines_of("offsets")], [7, 1000000004, 2000000007])
    write_ctf("far", [(0, [(0, 0, ticks(7, 9))]), (1, [(0, 0, ticks(5))])], [{"offset_s": -9000000000}, {"offset_s": 9000000000}])
    expect([line["ts"] for line in lines_of("far")], [7, 9, 18000000000000000005])
    # The boot is the one that the clock names.
    uuids = ['"11111111-1111-1111-1111-111111111111"', '"22222222-2222-2222-2222-222222222222"']
    for name, uuid, at in (("one", uuids[0], 1000), ("again", uuids[0], 1500), ("two", uuids[1], 1500)):
        write_ctf(name, [(0, [(0, 0, ticks(at, at + 1000))])], [{"uuid": uuid}])
    done = run(binary, "report", "--json", "one", "again")
    expect([json.loads(line)["ts"] for line in done.stdout.splitlines()], [1000, 1500, 2000, 2500])
    for other in ("two", "work"):
        expect("were made on different machines, or with a restart between" in run(binary, "report", "one", other, code=1).stderr, True)
    write_ctf("both", [(0, [(0, 0, ticks(1000))]), (1, [(0, 0, ticks(1500))])], [{"uuid": uuid, "absolute": "true"} for uuid in uuids])
    words = f"babeltrace2 cannot read the CTF trace both: its traces are of different machines, or of different boots, as their clocks say ({uuids[0]}, {uuids[1]}): these".replace('"', "")
    expect(words in run(binary, "report", "both", code=1).stderr, True, words)
    write_ctf("nameless", [(0, [(0, 0, ticks(1000))])])
    expect("used unchanged, because the file does not record its machine or boot" in run(binary, "report", "nameless", "work").stderr, True)
    # Our own export names it, too.
    run(binary, "export", "work", "--to", "named.ctf")
    expect(run(binary, "report", "named.ctf", "work").stderr.count("used unchanged"), 0)
    expect("were made on different" in run(binary, "report", "named.ctf", "one", code=1).stderr, True)
    run("babeltrace2", f"--plugin-path={plugin}", "one", "--component=sink.ringside.recording", '--params=path="kept"')
    expect(json.loads(pathlib.Path("kept/meta.json").read_text())["boot"], uuids[0].strip('"'))


def abroad():
    """A recording of another boot and machine: its clock, its host and its names, and nothing of this one."""
    run(binary, "record", "-q", "--libc", "malloc", "-o", "abroad", "--", build / "tests/names_writer", "rename")
    path = pathlib.Path("abroad/meta.json")
    meta = json.loads(path.read_text())
    boot = "11111111-2222-3333-4444-555555555555"
    meta |= {"boot": boot, "wall": {"offset_ns": 1000000000500000000, "error_ns": 7}}
    meta["world"] |= {"machine": "riscv64", "host": "board", "release": "6.6.6-abroad"}
    path.write_text(json.dumps(meta))
    run(binary, "export", "abroad", "--to", "abroad.ctf")
    same(read("abroad.ctf"), report("abroad"), "a recording of another boot")
    expect({event[5] for event in read("abroad.ctf")[0] if event[6][0] in (5001, 5002)}, {"names_writer", "worker"})
    said = next(message for message in messages_of("abroad.ctf") if type(message) is bt2._StreamBeginningMessageConst).stream
    clock = said.cls.default_clock_class
    expect((clock.offset.seconds, clock.offset.cycles, clock.origin_is_unix_epoch, str(clock.uuid)), (1000000000, 500000000, True, boot))
    expect([str(said.trace.environment[key]) for key in ("hostname", "kernel_release", "machine")], ["board", "6.6.6-abroad", "riscv64"])
    # And back: the time of day, the names of each time, the machine.
    walls = [[json.loads(line).get("wall") for line in run(binary, "report", "--json", "--wall", where).stdout.splitlines()] for where in ("abroad", "abroad.ctf")]
    expect(walls[1], walls[0])
    expect(walls[0][0] is not None, True)
    same(report("abroad.ctf"), report("abroad"), "names over time, from a CTF trace")
    # Without a time of day none is made up; the boot's name stays.
    del meta["wall"]
    path.write_text(json.dumps(meta))
    run(binary, "export", "abroad", "--to", "timeless.ctf")
    clock = next(message for message in messages_of("timeless.ctf") if type(message) is bt2._StreamBeginningMessageConst).stream.cls.default_clock_class
    expect((clock.offset.seconds, clock.offset.cycles, clock.origin_is_unix_epoch, str(clock.uuid)), (0, 0, False, boot))
    expect("time of day" in run(binary, "report", "--wall", "timeless.ctf", code=2).stderr, True)


def made_fields():
    def fields_of(fields, *payloads, types=""):
        write_ctf("fields", [(0, [(0, 0, [(n, payload) for n, payload in enumerate(payloads)])])], fields=fields, types=types)
        both = [dict(json.loads(line, object_pairs_hook=list))["fields"] for line in run(binary, "report", "--json", "fields").stdout.splitlines()]
        texts = [line.split("tick: ")[1] for line in run(binary, "report", "fields").stdout.splitlines()]
        return both, texts

    # No two members have the same name.
    fields, texts = fields_of("struct { uint8_t b; } a; uint8_t a_b; uint8_t common_pid;", bytes([11, 22, 33]))
    expect(fields, [[("a_b", 11), ("a_b_", 22), ("common_pid_", 33)]])
    expect(texts, ["a_b=11 a_b_=22 common_pid_=33"])
    # What is nested deeper than members go is a text.
    for depth in (8, 9, 12):
        deep = "uint8_t v; uint8_t w;"
        for _ in range(depth):
            deep = f"struct {{ {deep} }} a;"
        fields, texts = fields_of(deep + " uint8_t end;", bytes([1, 2, 3]))
        expect(texts, ["a_a_a_a_a_a_a_a_v=1 a_a_a_a_a_a_a_a_w=2 end=3" if depth == 8 else "a_a_a_a_a_a_a_a_a=" + "a=" * (depth - 9) + "v=1 w=2 end=3"])
    # Values of small ranges have their label, whatever stands in it.
    enums = 'enum : uint8_t { low = 1 ... 5, high = 200 ... 255, wide = 50 ... 150, "a \\"quoted\\" one" = 6, "back\\\\slash" = 7, other = 8 } e;'
    _, texts = fields_of(enums, *(bytes([n]) for n in (0, 1, 3, 5, 6, 7, 8, 100, 200, 255)))
    expect(texts, ["e=" + one for one in ("0x0", "low", "low", "low", 'a "quoted" one', "back\\slash", "other", "0x64", "high", "high")])
    signed = "typealias integer { size = 8; align = 8; signed = true; } := int8_t;"
    _, texts = fields_of("enum : int8_t { below = -128 ... -100, zero = 0 } e;", *(bytes([n]) for n in (128, 156, 157, 0)), types=signed)
    expect(texts, ["e=below", "e=below", "e=0xffffffffffffff9d", "e=zero"])


def lttng():
    shop = build / "tests/lttng_shop"
    if not shop.exists():
        skip("liblttng-ust-dev is not installed")
    for program in ("lttng-sessiond", "lttng"):
        if not shutil.which(program):
            skip("lttng-tools is not installed")
    session = pathlib.Path(__file__).resolve().parents[1] / "lttng/session"
    run(session, shop, "out")
    theirs = []
    for message in bt2.TraceCollectionMessageIterator("out"):
        if type(message) is bt2._EventMessageConst:
            event = message.event
            fields = {name: value(field) for name, field in event.payload_field.items() if not name.endswith("_length")}
            context = event.common_context_field
            theirs.append((message.default_clock_snapshot.value, event.name, int(event.packet.context_field["cpu_id"]), int(context["vtid"]), int(context["vpid"]), str(context["procname"]), list(fields.values())))
    expect(len(theirs), 1001)
    same(report("out"), (sorted(theirs, key=repr), []), "LTTng-UST's events")
    expect(json.loads(run(binary, "top", "out", "--once", "--json").stdout)["count"], 1001)
    # On one timeline with our own, of the same boot.
    run(binary, "record", "-q", "-o", "later", "--", build / "example_01_write")
    both = [json.loads(line) for line in run(binary, "report", "--json", "later", "out").stdout.splitlines()]
    expect([line["ts"] for line in both], sorted(line["ts"] for line in both))
    expect(both[0]["event"].startswith("shop:") and both[1001]["event"] != "shop:closed", True)
    # Discarded events are counted: those that an event follows as a gap, the others as refused.
    run(session, shop, "small", "--loss")
    known = run("babeltrace2", "small").stderr
    lost = sum(int(n) for n in re.findall(r"discarded (\d+) events", known))
    expect(lost > 0, True, known)
    counted = run(binary, "report", "small").stderr
    expect(f"{lost:,} events were lost" in counted, True, counted)
    expect(len(report("small")[0]) + lost, 1001)


{"export": export, "source": source, "live": live, "back": back, "made": made, "abroad": abroad, "lttng": lttng}[what]()
sys.exit(1 if failed else 0)
