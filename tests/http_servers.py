"""HTTP servers in this process, for what our processes and pages send requests to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

_OF_THE_CONNECTION = {"content-length", "connection", "transfer-encoding", "content-encoding"}


@contextmanager
def serving(answer: Callable[[httpx.Request], httpx.Response], port: int = 0) -> Iterator[int]:
    """Answer requests at ``127.0.0.1`` as `httpx.MockTransport` would, until the block ends; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            url = f"http://127.0.0.1:{server.server_port}{self.path}"
            answered = answer(httpx.Request(self.command, url, headers=self.headers.items(), content=body))
            self.send_response_only(answered.status_code)
            for name, value in answered.headers.multi_items():
                if name.lower() not in _OF_THE_CONNECTION:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answered.content)))
            self.end_headers()
            self.wfile.write(answered.content)

        do_GET = do_POST = do_HEAD = _answer  # noqa: N815  (the names that http.server looks for)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
