"""A collector: takes OTLP over HTTP, reads it with OpenTelemetry's own classes, prints each span as a line of JSON."""

import http.server
import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["content-type"] == "application/x-protobuf", self.headers
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        # Nothing that these classes do not know, and nothing left out that they would write.
        assert request.SerializeToString() == body, "another writer would write it otherwise"
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.tell(of_resource.resource, of_scope.scope, span)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def tell(self, resource, scope, span):
        told = {
            "path": self.path,
            "key": self.headers.get("x-key"),
            "resource": attributes(resource.attributes),
            "scope": MessageToDict(scope),
            "trace_id": span.trace_id.hex(),
            "span_id": span.span_id.hex(),
            "parent_id": span.parent_span_id.hex(),
            "state": span.trace_state,
            "name": span.name,
            "kind": Span.SpanKind.Name(span.kind),
            "began_ns": span.start_time_unix_nano,
            "ended_ns": span.end_time_unix_nano,
            "attributes": attributes(span.attributes),
            "status": span.status.code,
        }
        print(json.dumps(told), flush=True)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
