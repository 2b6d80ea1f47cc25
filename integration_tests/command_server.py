"""`llama-index-gear` as a program that starts at once: each run is a fork of one process that has imported everything.

Imports take most of a command's time. A run is a process of its own, with the caller's folder, environment, arguments,
stdin, stdout and stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SERVER = """
import json, os, socket, sys
from pathlib import Path
from kept_vectors import keep_vectors
from llama_index_gear.cli import asking, comparing, indexing, main
from llama_index_gear.embeddings import light

with keep_vectors(light.LightEmbedding, Path(sys.argv[2])), socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    print("ready", flush=True)
    while True:
        link, _ = server.accept()
        size, descriptors, _, _ = socket.recv_fds(link, 4, 3)
        with link.makefile("rb") as sent:
            folder, environment, arguments = json.loads(sent.read(int.from_bytes(size, "big")))
        child = os.fork()
        if child == 0:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = arguments
            sys.exit(main.main())
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        link.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
        link.close()
"""
PROGRAM = """#!{python} -S
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    words = json.dumps([os.getcwd(), dict(os.environ), sys.argv]).encode()
    socket.send_fds(link, [len(words).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(words)
    sys.exit(link.recv(1)[0])
"""


@contextmanager
def serve_command(program: Path, environment: Mapping[str, str], vectors: Path) -> Iterator[None]:
    """Write the program, which works while the context is open, and finds vectors in a folder."""
    with tempfile.TemporaryDirectory() as folder:  # of a short name: a socket's address has a hundred letters at most
        address = str(Path(folder, "server"))
        program.write_text(PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        # One thread: a fork has none of its parent's pools.
        words = [sys.executable, "-c", SERVER, address, str(vectors)]
        paths = os.pathsep.join([str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
        variables = {**environment, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == b"ready\n"
                yield
            finally:
                server.kill()
