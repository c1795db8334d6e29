"""An address where there is no Ray cluster is refused at once."""

import socket
import threading
import time

import pytest

from bipolar.lab.cli import main
from bipolar.lab.errors import UsageError
from bipolar.lab.reproduce import executors
from bipolar.lab.reproduce.executors import SETTINGS, check_address, on_ray


@pytest.fixture
def server() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(10)
    return made


def answering(server: socket.socket, answer: bytes) -> str:
    """The address of a server that gives one answer."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("address", ["somewhere", "host:", "host:x", ":6379", "host:70000", "ray://host"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match=f"--ray-address {address}: expected HOST:PORT"):
        on_ray(address)


def test_a_name_that_cannot_be_one() -> None:
    with pytest.raises(UsageError, match=r"there is no cluster \(no machine has such a name\)"):
        check_address(f"{'a' * 70}:6379")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_there(server: socket.socket, scheme: str) -> None:
    port = server.getsockname()[1]
    server.close()
    with pytest.raises(UsageError, match=r"there is no cluster .*ray start --head"):
        check_address(f"{scheme}127.0.0.1:{port}")


def test_somebody_else_there(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with server, pytest.raises(UsageError, match="what answers there is not Ray"):
        check_address(answering(server, b"HTTP/1.1 400 Bad Request"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(executors, "ANSWER", 0.05)
        with pytest.raises(UsageError, match="timed out"):
            check_address(f"127.0.0.1:{silent.getsockname()[1]}")


def test_a_name_that_is_looked_up_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "ALL_ANSWERS", 0.05)
    ended = threading.Event()
    monkeypatch.setattr(executors, "_problem_of", lambda host, port: str(ended.wait(10)))
    with pytest.raises(UsageError, match=r"there is no cluster \(timed out\)"):
        check_address("slow.invalid:6379")
    ended.set()


def test_a_server_of_grpc(server: socket.socket) -> None:
    with server:
        check_address(answering(server, SETTINGS + bytes(5)))


def test_a_server_that_does_not_answer_as_ray_does_is_told_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executors, "SLOW", 0.01)
    with executors._said_if_slow("host:1"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("--ray-address host:1: something answers there, but not as a Ray")
    for address, seconds in (("host:1", 0.0), (None, 0.2)):
        with executors._said_if_slow(address):
            time.sleep(seconds)
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("address", ["auto", "local", "provider://cluster"])
def test_addresses_that_are_for_ray_to_find(address: str) -> None:
    check_address(address)


def test_the_command_says_so() -> None:
    with pytest.raises(SystemExit, match="--ray-address nowhere: expected HOST:PORT"):
        main(["reproduce", "figure1", "--ray-address", "nowhere"])
