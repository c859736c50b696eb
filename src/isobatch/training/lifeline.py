"""How processes that train one run notice that one of them is gone, before a sum over all of them waits forever.

A star of TCP connections: process 0 has one to each of the others. A byte a second says that a process lives; the end
of a connection, or silence for too long, that it does not. Whoever notices says so in one sentence that names the
process, and ends this one: a thread that is inside a collective operation can be ended in no other way.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from isobatch.formatting import Say

BEAT, BYE, FAULT, LOST = "", "bye", "fault", "lost"  # first words of a line
BEAT_SECONDS = 1.0
LAST_WORDS_SECONDS = 5.0  # that a process which fails waits to hear whether another one failed before it


class Lifeline:
    """Of this process, number `index`; process 0 listens where `listen` says, and the others connect there."""

    def __init__(self, index: int, count: int, limit: float, say: Say, end: Callable[[int], None] = os._exit) -> None:
        self.index, self.count, self.limit, self.say, self.end = index, count, limit, say, end
        self._peers: dict[int, socket.socket] = {}
        self._gone: set[int] = set()  # ended as they should
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def accept(self, server: socket.socket) -> None:
        """Process 0: all the others."""
        server.settimeout(self.limit)
        with server:
            while len(self._peers) < self.count - 1:
                connection, _ = server.accept()
                connection.settimeout(self.limit)
                number = int(connection.makefile("r").readline())
                self._peers[number] = connection
        self._start()

    def connect(self, host: str, port: int) -> None:
        """The others: process 0."""
        connection = socket.create_connection((host, port), timeout=self.limit)
        connection.sendall(f"{self.index}\n".encode())
        self._peers[0] = connection
        self._start()

    def _start(self) -> None:
        for number, connection in self._peers.items():
            connection.settimeout(self.limit)
            threading.Thread(target=self._listen, args=(number, connection), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            self._tell(BEAT)

    def _tell(self, line: str) -> None:
        for number, connection in list(self._peers.items()):
            if number not in self._gone:
                with suppress(OSError):  # whoever listens notices
                    connection.sendall(f"{line}\n".encode())

    def _listen(self, number: int, connection: socket.socket) -> None:
        try:
            lines = connection.makefile("r", encoding="utf-8", errors="replace")
            for line in lines:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == BYE:
                    self._gone.add(number)
                    return
                if word in (FAULT, LOST):
                    code, _, sentence = rest.partition(" ")
                    who = f"process {number} of {self.count} failed: " if word == FAULT else ""
                    self._give_up(f"{who}{sentence}", number, int(code))
            how = "ended without a word"
        except TimeoutError:
            how = f"showed no life for {self.limit:g} seconds (process_timeout)"
        except OSError as error:
            how = f"cannot be reached ({error.strerror})"
        self._give_up(f"process {number} of {self.count} {how}.", number)

    def _give_up(self, sentence: str, number: int, code: int = 1) -> None:
        with self._lock:  # one of them speaks
            if self._closed.is_set():
                return
            self._closed.set()
            self._gone.add(number)
            self._tell(f"{LOST} {code} {sentence}")
            with suppress(Exception):
                self.say(sentence)
                sys.stdout.flush()
                sys.stderr.flush()
            self.end(code)

    def fail(self, sentence: str, code: int = 1) -> None:
        """This process ends because of an error, with this exit code: so do the others. Unless it failed because of
        another one, which it is told first: an operation over all processes breaks off in each of them."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._tell(f"{FAULT} {code} {' '.join(sentence.split())}")
        self._hang_up()

    def wait_for_cause(self) -> None:
        """Give another process the time to be missed."""
        time.sleep(LAST_WORDS_SECONDS)

    def close(self) -> None:
        """This process is done."""
        self._closed.set()
        self._tell(BYE)
        self._hang_up()

    def _hang_up(self) -> None:
        for connection in self._peers.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
