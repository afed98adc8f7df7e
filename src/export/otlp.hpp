// Spans for OpenTelemetry: lines of OTLP's JSON, each a TracesData that a collector takes (POST /v1/traces, otlpjsonfile).
//
// An event with a duration, a span and a call are spans; what lies in one of its thread is its child, or, without a length, its
// event. An event in no span is a span without a length, so that none is missing; a loss is one, with the status ERROR. A
// span's parent ends after it, so finished spans wait for it: at most 16,384 of a thread, then the oldest go without. put_out()
// puts out those that wait no longer, finish() all.
//
// Fields trace_id (32 hexadecimal digits), span_id and parent_span_id (16, or an integer), or traceparent (as in HTTP) join an
// event's span to those of a service; what lies in it is of the same trace. Without them a span that lies in no other begins a
// trace. Numbers of traces and spans follow from the events, so a second export has the same.
#pragma once
#include <memory>

#include "export/exporter.hpp"

namespace ringside {

std::unique_ptr<Exporter> otlp_exporter(const Exported& of, Exporter::Put put);

}  // namespace ringside
