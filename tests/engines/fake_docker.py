"""A stand-in for docker: `fake_docker.py daemon` runs containers that are no descendants of their clients.

`run --rm --name NAME -v DIR:/models:ro IMAGE ARGS..` starts IMAGE (a program) with ARGS, in which /models is DIR; the
client ends with it and forwards TERM. `kill NAME` and `inspect --format .. NAME` do what docker's do. State lies in
$FAKE_DOCKER.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])
WITH_VALUE = ("--name", "-v", "-p", "--gpus")


def daemon() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(HOME / "socket"))
        server.listen()
        print("up", flush=True)
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve, args=(client,), daemon=True).start()


def serve(client: socket.socket) -> None:
    """Start what the client asks for; tell its status when it ends."""
    with client:
        asked = json.loads(client.recv(1 << 16))
        with open(asked["log"], "ab") as log:
            container = subprocess.Popen(asked["argv"], stdout=log, stderr=log, start_new_session=True)
        (HOME / asked["name"]).write_text(str(container.pid))
        status = container.wait()
        (HOME / asked["name"]).unlink()
        client.sendall(b"%d\n" % status)


def run(words: list[str]) -> int:
    given: dict[str, str] = {}
    while words[0].startswith("-"):
        option = words.pop(0)
        if option in WITH_VALUE:
            given[option] = words.pop(0)
    source, target, _ = given["-v"].split(":")
    argv = [words[0], *(w.replace(target, source) for w in words[1:])]
    name = given["--name"]
    log = os.readlink("/proc/self/fd/1") if words[1:2] != ["--help"] and words[1:2] != ["--version"] else None
    if log is None:
        return subprocess.run(argv, check=False).returncode

    def forward(*_: object) -> None:
        signal_container(name, signal.SIGTERM)

    if os.environ.get("FAKE_DOCKER_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, forward)
    with socket.socket(socket.AF_UNIX) as daemon_socket:
        daemon_socket.connect(str(HOME / "socket"))
        daemon_socket.sendall(json.dumps({"argv": argv, "log": log, "name": name}).encode())
        status = int(daemon_socket.recv(16) or b"0")
    return status if status >= 0 else 128 - status


def signal_container(name: str, number: signal.Signals) -> int:
    try:
        os.kill(int((HOME / name).read_text()), number)
    except (FileNotFoundError, ProcessLookupError):
        return 1
    return 0


def main(words: list[str]) -> int:
    if words[0] == "daemon":
        daemon()
    if words[0] == "run":
        return run(words[1:])
    if words[0] == "kill":
        return signal_container(words[1], signal.SIGKILL)
    print((HOME / words[-1]).read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
