"""The page about notices: its server of replayed answers says what docs/formats/notices.md claims."""

import http.server
import pathlib
import re
import threading
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/formats/notices.md"


def test_the_pages_server_plays_a_cloud(monkeypatch):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1]
    assert code.count("8080") == 1
    made = []

    class Server(http.server.HTTPServer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

        def serve_forever(self, *arguments):
            threading.Thread(target=super().serve_forever, daemon=True).start()

    monkeypatch.setattr(http.server, "HTTPServer", Server)
    exec(code.replace("8080", "0"), {})  # any free port; a thread, so that it ends with the test
    place = f"http://127.0.0.1:{made[0].server_port}/computeMetadata/v1/instance/"
    try:
        assert urllib.request.urlopen(place + "preempted", timeout=10).read() == b"TRUE"
        assert urllib.request.urlopen(place + "maintenance-event", timeout=10).read() == b"NONE"
    finally:
        made[0].shutdown()
