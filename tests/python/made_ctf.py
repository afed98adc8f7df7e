"""CTF 1.8, made small for tests: traces that other tracers may write."""
import os
import pathlib
import shutil
import struct


def write_ctf(name, streams, clocks=({},), fields="uint32_t n;", types=""):
    """A directory. streams: (clock, packets) for each; a packet is (its number, events discarded so far, [(time, payload), ...])."""
    text = "/* CTF 1.8 */\n"
    for bits in (8, 16, 32, 64):
        text += f"typealias integer {{ size = {bits}; align = 8; signed = false; }} := uint{bits}_t;\n"
    text += types + "trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; uint32_t stream_id; }; };\n"
    for i, clock in enumerate(clocks):
        text += f"clock {{ name = clock{i}; " + "".join(f"{key} = {value}; " for key, value in {"freq": 1000000000, **clock}.items()) + "};\n"
    shutil.rmtree(name, ignore_errors=True)
    os.mkdir(name)
    for i, (clock, packets) in enumerate(streams):
        time = f"integer {{ size = 64; align = 8; signed = false; map = clock.clock{clock}.value; }}"
        text += f"stream {{ id = {i}; packet.context := struct {{ {time} timestamp_begin; {time} timestamp_end; uint64_t content_size; "
        text += "uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; };\n"
        text += f"event.header := struct {{ uint32_t id; {time} timestamp; }}; }};\n"
        text += f'event {{ id = 0; stream_id = {i}; name = "made:tick"; fields := struct {{ {fields} }}; }};\n'
        out = b""
        for number, discarded, events in packets:
            body = b"".join(struct.pack("<IQ", 0, at) + payload for at, payload in events)
            size = 8 * (8 + 6 * 8 + 4 + len(body))
            out += struct.pack("<II6QI", 0xC1FC1FC1, i, events[0][0], events[-1][0], size, size, number, discarded, i) + body
        pathlib.Path(name, f"stream{i}").write_bytes(out)
    pathlib.Path(name, "metadata").write_text(text)


def ticks(*times):
    return [(time, struct.pack("<I", n)) for n, time in enumerate(times)]
