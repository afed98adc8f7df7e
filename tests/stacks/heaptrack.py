#!/usr/bin/env python3
"""The allocations of one run of GCC's compiler and of one of sqlite3, by call site, as heaptrack and as ringside see them.
usage: heaptrack.py RINGSIDE. Exit code 77, and a reason, where heaptrack is missing."""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ringside = os.path.abspath(sys.argv[1])
if not shutil.which("heaptrack"):
    print("SKIP: heaptrack is not installed")
    sys.exit(77)
folder = tempfile.TemporaryDirectory(prefix="ringside-heaptrack-")
os.chdir(folder.name)
os.environ["RINGSIDE_ROOT"] = folder.name + "/root"
os.mkdir("root")

SOURCE = """#include <map>
#include <string>
std::map<std::string, int> words;
int main() { words["a"] = 1; return static_cast<int>(words.size()); }
"""
QUERIES = """create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, hex(i * i) from n;
create index tb on t(b);
select count(*), max(b) from t where b > '4';
"""


def function(frame):
    """Its name, as both tools have it: without arguments of templates; an address by its place in its page."""
    frame = re.sub(r" \(.*\)$", "", frame)
    address = re.match(r"(?:0x|.*\+0x)([0-9a-f]+)$", frame)
    if address:
        return "?" + address[1].zfill(3)[-3:]
    frame = frame.replace("operator<<", "operator shift")
    while re.search(r"<[^<>]*>", frame):
        frame = re.sub(r"<[^<>]*>", "", frame)
    return frame.split("(")[0]


def sites(folded, frames):
    """Counts by the functions nearest to the allocation; heaptrack leaves operator new out."""
    counts = collections.Counter()
    for line in open(folded):
        stack, count = line.rsplit(" ", 1)
        stack = [f for f in stack.split(";") if f]
        while stack and stack[-1].startswith("operator new"):
            stack.pop()
        counts[tuple(function(f) for f in stack[-frames:])] += int(count)
    return counts


failed = 0


def compare(name, command, text=None):
    global failed
    run = dict(input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["heaptrack", "-o", name, *command], stderr=subprocess.DEVNULL, **run)
    subprocess.run(["heaptrack_print", glob.glob(name + ".*")[0], "-F", name + ".theirs", "--flamegraph-cost-type", "allocations"],
                   stderr=subprocess.DEVNULL, **run)
    subprocess.run([ringside, "record", "-q", "--libc", "malloc", "--stack", "--depth", "128", "-b", "64M", "-o", name + ".rec", "--", *command], **run)
    with open(name + ".ours", "w") as out:
        subprocess.run([ringside, "flame", name + ".rec", "-e", "libc:malloc,libc:calloc,libc:realloc", "--folded"],
                       stdout=out, stderr=subprocess.DEVNULL, check=True)
    for frames in (1, 3):
        theirs, ours = sites(name + ".theirs", frames), sites(name + ".ours", frames)
        total = sum(theirs.values())
        equal = sum((theirs & ours).values())
        # What differs: allocations before a preloaded library begins, and inlined functions that only one names.
        good = total > 10_000 and abs(sum(ours.values()) - total) <= total * 0.001 and equal >= total * 0.99
        print(f"{name}: {total} allocations of heaptrack, {sum(ours.values())} of ringside; {equal} at the same {frames} function(s), of {len(theirs)}")
        if not good:
            failed = 1
            print("FAIL; the largest differences (heaptrack, ringside, functions):")
            for key in sorted(set(theirs) | set(ours), key=lambda k: -abs(theirs[k] - ours[k]))[:15]:
                print("   ", theirs[key], ours[key], ";".join(key))


open("words.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-E", "words.cpp", "-o", "words.ii"], check=True)
compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()
compare("compiler", [compiler, "-fpreprocessed", "-quiet", "words.ii", "-o", "/dev/null"])
if shutil.which("sqlite3"):
    compare("sqlite3", ["sqlite3", ":memory:"], QUERIES)
sys.exit(failed)
