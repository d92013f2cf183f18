"""The roads to a server beside plain TCP: TLS, with a CA of our own, and a socket file."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import bandog
from conftest import eventually, free_port

CA = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
SERVER = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"


class Roads:
    """A server with a socket file, a TLS port, and certificates for both sides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate("ca", CA)
        self.certificate("stranger", CA)
        self.certificate("server", SERVER, by="ca")
        self.certificate("caller", "extendedKeyUsage=clientAuth\n", by="ca")
        port = free_port()
        self.tls = f"rediss://127.0.0.1:{port}"
        self.socket = folder / "redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--tls-port", str(port)]
        command += ["--save", "", "--appendonly", "no", "--dir", str(folder), "--tls-auth-clients", "optional"]
        command += ["--tls-ca-cert-file", str(folder / "ca.pem"), "--tls-cert-file", str(folder / "server.pem")]
        command += ["--tls-key-file", str(folder / "server.key"), "--logfile", str(folder / "redis.log")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.raw = redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)
        eventually(self.socket.exists)

    def certificate(self, name: str, extensions: str, by: str | None = None) -> None:
        """Makes `<name>.key` and `<name>.pem`, which `by` vouches for, or nobody but itself."""
        (self.folder / "extensions").write_text(extensions)
        made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"]
        self.openssl("req", *made, "-keyout", f"{name}.key", "-out", "request")
        signed = ["-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial"] if by else ["-signkey", f"{name}.key"]
        self.openssl("x509", "-req", "-in", "request", "-days", "2", "-extfile", "extensions", *signed)
        (self.folder / "out.pem").rename(self.folder / f"{name}.pem")

    def openssl(self, what: str, *options: str) -> None:
        out = [] if what == "req" else ["-out", "out.pem"]
        subprocess.run(["openssl", what, *options, *out], cwd=self.folder, check=True, capture_output=True)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def stop(self) -> None:
        self.raw.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roads]:
    if shutil.which("openssl") is None or shutil.which("redis-server") is None:
        pytest.skip("needs openssl and redis-server")
    roads = Roads(tmp_path_factory.mktemp("roads"))
    yield roads
    roads.stop()


def works(roads: Roads, url: str, name: str, **options: Any) -> None:
    """A lock is taken, waited for and handed on, by threads and by coroutines."""
    with bandog.connect(url, **options) as one, bandog.connect(url, **options) as two:
        held = one.lock(name).acquire()
        assert roads.raw.hgetall(name) == {held.owner: "1"}
        got: list[str] = []
        thread = threading.Thread(target=lambda: got.append(two.lock(name, wait=10).acquire().owner))
        thread.start()
        assert two.lock(name).try_acquire() is None
        held.release()
        thread.join()
        assert roads.raw.hgetall(name) == {got[0]: "1"}
        two.lock(name).force_release()

        async def main() -> None:
            async with one.lock(name) as hold:
                assert roads.raw.hgetall(name) == {hold.owner: "1"}

        asyncio.run(main())
        assert not roads.raw.exists(name)


def test_a_socket_file(roads: Roads, name: str) -> None:
    works(roads, f"unix://{roads.socket}", name)


def test_tls_with_a_ca_as_bytes_and_as_text_by_address_and_by_name(roads: Roads, name: str) -> None:
    ca = roads.read("ca.pem")
    works(roads, roads.tls, name, tls_ca=ca)
    works(roads, roads.tls, name, tls_ca=ca.decode())
    works(roads, roads.tls.replace("127.0.0.1", "localhost"), name, tls_ca=ca)


@pytest.mark.parametrize("ca", [None, "stranger.pem"])
def test_tls_refuses_whom_nobody_vouches_for(roads: Roads, name: str, ca: str | None) -> None:
    with bandog.connect(roads.tls, connect_timeout=2, tls_ca=ca and roads.read(ca)) as client:
        with pytest.raises(bandog.LockError, match="tls_ca"):
            client.lock(name).acquire(wait=0)
    assert not roads.raw.exists(name)


def test_tls_without_verification_where_that_was_asked_for(roads: Roads, name: str) -> None:
    works(roads, roads.tls, name, tls_without_verification=True)


def test_tls_with_a_server_that_asks_who_is_there(roads: Roads, name: str) -> None:
    ca = roads.read("ca.pem")
    roads.raw.config_set("tls-auth-clients", "yes")
    try:
        shown = {"tls_certificate": roads.read("caller.pem"), "tls_key": roads.read("caller.key")}
        works(roads, roads.tls, name, tls_ca=ca, **shown)
        with bandog.connect(roads.tls, tls_ca=ca, connect_timeout=2) as client:
            with pytest.raises(bandog.LockError, match="tls_certificate and tls_key"):
                client.lock(name).acquire(wait=0)
    finally:
        roads.raw.config_set("tls-auth-clients", "optional")
