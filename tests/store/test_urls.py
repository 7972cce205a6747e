"""URLs: how several are told apart, what of them is shown, which are refused."""

from typing import Any

import pytest
import redis

from redis_acker import Acker
from redis_acker.errors import BadInput
from redis_acker.store.connect import URL_VARIABLE, _split
from redis_acker.store.urls import hide_password
from redis_acker.testing import fake_redis

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("embedded", "embedded"),
        ("rediss://host/1?ssl_ca_certs=/etc/ca.pem&db=1", "rediss://host/1?ssl_ca_certs=/etc/ca.pem&db=1"),
        (f"rediss://host?ssl_password={SECRET}", "rediss://host?***"),
        ("unix:///tmp/redis.sock", "unix:///tmp/redis.sock"),
        (f"redis://:{SECRET}@host", "redis://:***@host"),
        (f"rediss://user:{SECRET}@host:1/2", "rediss://user:***@host:1/2"),
        (f"redis://user:{SECRET}/@:{SECRET}@host", "redis://user:***@host"),
        (f"redis+cluster://user:{SECRET}#?@host:1", "redis+cluster://***"),
        (f"redis://host:1?password=a@{SECRET}", "redis://***"),
        (f"redis://u:a\n{SECRET}@host", "redis://u:***@host"),
        (f"redis://host?PASSWORD={SECRET}", "redis://host?***"),
        (f"redis://host?p%61ssword={SECRET}&db=1", "redis://host?***&db=1"),
        ("redis://host/\x1b[31m", "redis://host/\\x1b[31m"),
        (f"redis+sentinel://:{SECRET}@a:1,b:2/service", "redis+sentinel://:***@a:1,b:2/service"),
        (f"redis://host?password={SECRET}&db=1", "redis://host?***&db=1"),
        (f"redis+sentinel://a:1/s?sentinel_password={SECRET}", "redis+sentinel://a:1/s?***"),
        (f"unix:///tmp/s?username=u&password={SECRET}", "unix:///tmp/s?username=u&***"),
        (f"redis://host#?auth={SECRET}", "redis://***"),
        (f"redis://host?username=u;password={SECRET}", "redis://host?***"),
        (f"redis+cluster://host?a=1&{SECRET}", "redis+cluster://host?***&***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    ("target", "urls"),
    [
        ("redis://a", ["redis://a"]),
        (" redis://a\n", ["redis://a"]),
        ("redis://a,redis://b", ["redis://a", "redis://b"]),
        ("redis://a:1/0 , rediss://b\tunix:///c", ["redis://a:1/0", "rediss://b", "unix:///c"]),
        ("redis+sentinel://a:1,b:2/service", ["redis+sentinel://a:1,b:2/service"]),
        ("redis+sentinel://a:1,b:2/s,redis://c", ["redis+sentinel://a:1,b:2/s", "redis://c"]),
        ("redis://:a,b c@host,redis://d", ["redis://:a,b c@host", "redis://d"]),
        ("embedded", ["embedded"]),
        ("redis://a,embedded", ["redis://a", "embedded"]),
        (["redis://a", "redis://b"], ["redis://a", "redis://b"]),
        (("redis://a",), ["redis://a"]),
    ],
)
def test_several_urls_are_told_apart(target: Any, urls: list[str]) -> None:
    assert _split(target) == urls


def test_the_environment_names_the_server_of_a_client_that_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "redis://a redis://b")
    assert _split(None) == ["redis://a", "redis://b"]
    for nothing in ("", "  "):
        monkeypatch.setenv(URL_VARIABLE, nothing)
        with pytest.raises(BadInput, match=f"set {URL_VARIABLE}"):
            _split(None)
    monkeypatch.delenv(URL_VARIABLE)
    with pytest.raises(BadInput, match=f"set {URL_VARIABLE}"):
        Acker()


@pytest.mark.parametrize(
    "target",
    [
        *("", "host:6379", "http://host", "redis", "redis://host:port", "redis://host:99999", "redis://host/db/1"),
        *(
            "redis://host?no_such_option=1",
            f"redis://u:{SECRET}@host?protocol=9",
            "redis+sentinel://host/service",
            "redis+sentinel://a:1,b:2",
        ),
        *(f"redis://:{SECRET}@host:port", f"http://u:{SECRET}@host", f"redis+sentinel://:{SECRET}@a:x/s"),
        *(
            f"u:{SECRET}@host",
            f"u:{SECRET}@host:6379/0",
            f"redis://host:port?PASSWORD={SECRET}",
            f"redis:/u:{SECRET}@h",
        ),
        *(f"redis://host?PASSWORD={SECRET}", f"redis://u:%0a{SECRET}\n@host:port", f"REDIS://u:{SECRET}@host"),
        f"redis://host?socket_timeout={SECRET}",
        *(f"redis://u:12#{SECRET}@host", f"redis://host/0#?auth={SECRET}", f"redis+cluster://host#{SECRET}"),
        *(f"redis+sentinel://u:12/{SECRET}@a:1", f"redis+cluster://u:12/{SECRET}@a:1", f"unix://u:12/{SECRET}@"),
        *(f"redis+sentinel://:[{SECRET}@a:1/s", f"redis+sentinel://a:1/s?auth={SECRET}", "redis+cluster://[::1"),
        f"redis+sentinel://a:1/s?socket_timeout={SECRET}",
        *(f"redis://host:port?password={SECRET}", f"redis://:a/{SECRET}@host/x", f"redis+cluster://:{SECRET}@a:b"),
        *([], 5, [5], ["redis://a", None], ["redis://a", "redis://a"], "redis://a,redis://a"),
        *("embedded,redis://a", "redis+cluster://a,redis://b", "redis+cluster://a:1,redis+cluster://b:2"),
    ],
)
def test_a_target_that_names_no_server_is_refused(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, before anything is sent, and without telling a password."""
    sent: list[object] = []
    monkeypatch.setattr(redis.connection.Connection, "send_command", lambda *args: sent.append(args))
    with pytest.raises(BadInput) as caught:
        Acker(target, retry_for_s=0)
    assert SECRET not in str(caught.value)
    assert ":" in str(caught.value)
    assert sent == []


def test_urls_and_clients_are_not_mixed() -> None:
    with pytest.raises(BadInput, match="not both"):
        Acker(["redis://a", fake_redis()])


def test_a_client_that_decodes_replies_is_refused() -> None:
    with pytest.raises(BadInput, match="decode_responses"):
        Acker(redis.Redis(decode_responses=True))


def test_an_acker_shows_itself_without_passwords(monkeypatch: pytest.MonkeyPatch, acker: Acker) -> None:
    monkeypatch.setattr(acker.servers, "urls", [f"redis://:{SECRET}@a", f"redis://u:{SECRET}@b"])
    assert SECRET not in repr(acker)
    assert "redis://u:***@b" in repr(acker)
    assert acker.namespace in repr(acker)


def test_an_acker_on_a_client_object_cannot_be_pickled(acker: Acker) -> None:
    with pytest.raises(BadInput, match="open it with a URL"):
        acker.__getstate__()
