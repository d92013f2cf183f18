"""The floor: a bare blocking socket that sends the two EVALSHAs of a pair and reads the two replies."""

import hashlib
import socket
from pathlib import Path

from common import address, measure

SCRIPTS = Path(__file__).parents[2] / "core" / "src" / "scripts"
OWNER = b"285475da-9152-4c83-822a-67ee2f116a79:52"


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


host, port, pairs = address()
link = socket.create_connection((host, port))
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
acquire_text = (SCRIPTS / "shape.lua").read_bytes() + (SCRIPTS / "acquire.lua").read_bytes()
release_text = (SCRIPTS / "release.lua").read_bytes()


def call(request: bytes) -> bytes:
    link.sendall(request)
    return link.recv(4096)


for text in (acquire_text, release_text):
    call(command(b"SCRIPT", b"LOAD", text))
acquire = command(
    b"EVALSHA",
    hashlib.sha1(acquire_text).hexdigest().encode(),
    b"1",
    b"bench:floor",
    b"30000",
    OWNER,
    b"1",
    b"1",
    b"30000",
)
release = command(
    b"EVALSHA",
    hashlib.sha1(release_text).hexdigest().encode(),
    b"2",
    b"bench:floor",
    b"redisson_lock__channel:{bench:floor}",
    OWNER,
    b"0",
    b"0",
    b"PUBLISH",
)


def pair() -> None:
    assert call(acquire) == b":1\r\n"
    assert call(release) == b"*1\r\n:0\r\n"


measure(pair, pairs)
