"""A saved run behind HTTP, by the standard library alone: JSON in, JSON out, a thread per request.

    python experiments/serve.py DIR [PORT]
    curl -d '{"x": [[1.0, 2.0]]}' http://localhost:8000

The body names the arguments of the function that was saved; weights that were saved are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jax
import numpy as np

import eqsat


def array(value: Any) -> np.ndarray:
    """JSON has one kind of real and of whole number each; the model has 32 bits of either."""
    x = np.asarray(value)
    return x.astype({"f": "float32", "i": "int32"}.get(x.dtype.kind, x.dtype))


def answer(serve: Callable[..., Any], body: bytes) -> tuple[int, Any]:
    """Status and reply; what does not fit the model is the caller's fault."""
    try:
        results = serve(**{name: array(x) for name, x in json.loads(body).items()})
    except (ValueError, AttributeError, eqsat.EqsatError) as e:
        return 400, {"error": str(e)}
    return 200, jax.tree_util.tree_map(lambda x: np.asarray(x).tolist(), results)


def server(serve: Callable[..., Any], port: int) -> ThreadingHTTPServer:
    """A server of this function; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, reply = answer(serve, self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """No line per request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    run = eqsat.load(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    print(f"{run} on http://localhost:{port}", flush=True)
    server(run, port).serve_forever()
