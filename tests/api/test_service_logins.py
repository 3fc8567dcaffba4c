"""Logins against several services at the same time; no part of a login gets into a log."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

import warm
from builders import Bundle, Wallet
from postgres import Cluster
from service import Service, services_of

AT_ONCE = 8


def ask(url: str, wallet: Wallet) -> str:
    response = httpx2.post(f"{url}/users/nonce", json={"address": wallet.address})
    assert response.status_code == 200, response.text
    return response.json()["nonce"]


def log_in(url: str, wallet: Wallet) -> str:
    login = {"address": wallet.address, "signature": wallet.sign_text(ask(url, wallet))}
    response = httpx2.post(f"{url}/users/authenticate", json=login)
    assert response.status_code == 200, response.text
    return response.json()["token"]


def statuses_at_once(urls: list[str], login: dict[str, str]) -> list[int]:
    """What each of `urls` answers to `login` when all are asked at the same moment."""
    barrier = threading.Barrier(len(urls))

    def send(url: str) -> int:
        with httpx2.Client() as client:
            client.get(f"{url}/healthz")  # so that the connection is up before the race
            barrier.wait()
            return client.post(f"{url}/users/authenticate", json=login).status_code

    with ThreadPoolExecutor(len(urls)) as pool:
        return sorted(pool.map(send, urls))


@pytest.fixture(scope="module")
def two(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """Two services of one database, with one secret."""
    folder = tmp_path_factory.mktemp("two")
    first, second = services_of(folder, asyncio.run(cluster.create_migrated(folder.name)))
    with first, second:
        yield first, second


def test_one_login_sent_to_two_services_at_the_same_time_succeeds_once(two: tuple[Service, Service]) -> None:
    for number in range(100, 115):
        wallet = Wallet(number)
        login = {"address": wallet.address, "signature": wallet.sign_text(ask(two[0].url, wallet))}
        urls = [service.url for service in two] * (AT_ONCE // 2)
        assert statuses_at_once(urls, login) == [200] + [401] * (AT_ONCE - 1)


def test_a_token_that_one_service_made_is_accepted_by_the_other(two: tuple[Service, Service]) -> None:
    first, second = two
    wallet = Wallet(140)
    login = {"address": wallet.address, "signature": wallet.sign_text(ask(first.url, wallet))}
    token = httpx2.post(f"{second.url}/users/authenticate", json=login).json()["token"]
    keys = {httpx2.get(f"{each.url}/users/api-key", headers={"x-auth-token": token}).json()["apiKey"] for each in two}
    assert len(keys) == 1


def test_simultaneous_first_calls_to_two_services_get_one_key(two: tuple[Service, Service]) -> None:
    headers = {"x-auth-token": log_in(two[0].url, Wallet(150))}

    def read(number: int) -> str:
        return httpx2.get(f"{two[number % 2].url}/users/api-key", headers=headers).json()["apiKey"]

    with ThreadPoolExecutor(10) as pool:
        assert len(set(pool.map(read, range(50)))) == 1


def secrets_command(data_dir: Path, name: str) -> str:
    done = warm.run("secrets", name, data=data_dir)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_running_service_takes_up_a_rotation_and_a_retirement(service: Service) -> None:
    def taken(token: str) -> int:
        return httpx2.get(f"{service.url}/users/api-key", headers={"x-auth-token": token}).status_code

    old = log_in(service.url, Wallet(160))
    assert "new secret" in secrets_command(service.data_dir, "rotate")
    assert taken(old) == 200
    new = log_in(service.url, Wallet(160))
    assert "retired secret" in secrets_command(service.data_dir, "retire")
    assert taken(old) == 401
    assert taken(new) == 200


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_secret_gets_into_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str], log_format: str) -> None:
    wallet, data_dir = Wallet(170), tmp_path / "data"
    environment = {"MUNIMENT_LOG_LEVEL": "debug", "MUNIMENT_LOG_REQUESTS": "all", "MUNIMENT_LOG_FORMAT": log_format}
    with Service(data_dir, environment=environment) as service:
        nonce = ask(service.url, wallet)
        login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
        token = httpx2.post(f"{service.url}/users/authenticate", json=login).json()["token"]
        key = httpx2.get(f"{service.url}/users/api-key", headers={"x-auth-token": token}).json()["apiKey"]
        send: Callable[..., httpx2.Response] = httpx2.post
        send(f"{service.url}/functions", files=Bundle().files, headers={"x-api-key": key})
        send(f"{service.url}/functions", files=Bundle().files, headers={"x-api-key": key[:-1]}, params={"apiKey": key})
        send(f"{service.url}/users/authenticate", json=login)
        send(f"{service.url}/users/nonce", content=json.dumps(login)[:-1], headers={"x-auth-token": token})
        httpx2.get(f"{service.url}/users/api-key", headers={"authorization": f"Bearer {token}x"}, params={"t": token})
    log = "".join(capfd.readouterr())
    assert "/users/authenticate" in log, "requests are in the log"
    stored = (data_dir / "secrets").read_text().split()
    for hidden in (nonce, login["signature"], *token.split("."), key, key[-64:], *stored):
        assert hidden.removeprefix("0x") not in log
