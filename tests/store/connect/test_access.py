"""Users, passwords and rights; and that a password is never shown."""

import pickle

import pytest

from redis_acker import Acker
from redis_acker.errors import AccessDenied, BadInput, ScriptsMissing, ServerUnavailable
from redis_acker.store.urls import hide_password
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import Server, start_server
from tests.store.connect.ledger import ONE_SERVER_KINDS, run_every_operation

PASSWORD = "geheim"


@pytest.fixture(params=ONE_SERVER_KINDS)
def server(request: pytest.FixtureRequest, keeper: Keeper) -> Server:
    return keeper.keep(start_server(request.param))


def add_user(server: Server, name: str, *rules: str) -> str:
    """Returns the URL with which this user logs in."""
    with server.client() as client:
        client.execute_command("ACL SETUSER", name, "on", f">{PASSWORD}", *rules)
    return server.url.replace("://", f"://{name}:{PASSWORD}@")


def test_every_operation_works_for_a_user_with_rights_to_its_namespace_alone(
    server: Server, namespace: str, clock: Clock
) -> None:
    url = add_user(server, "spark", f"~acker:{{{namespace}:*", "+@all", "-@dangerous", "-@admin")
    with Acker(url, namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)
    with pytest.raises(AccessDenied, match="check user, password and ACL rights"):
        Acker(url, namespace="other")


def test_the_password_alone_is_enough_for_the_default_user(keeper: Keeper, namespace: str, clock: Clock) -> None:
    server = keeper.keep(start_server("redis-7.0"))
    with server.client() as client:
        client.config_set("requirepass", PASSWORD)
    with Acker(server.url.replace("://", f"://:{PASSWORD}@"), namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)


def assert_one_sentence_without_password(error: AccessDenied) -> None:
    assert PASSWORD not in str(error)
    assert "\n" not in str(error)
    assert str(error).endswith("check user, password and ACL rights.")


def test_a_wrong_password_is_refused_in_one_sentence(server: Server, namespace: str) -> None:
    url = add_user(server, "spark", "allkeys", "+@all").replace(PASSWORD, f"{PASSWORD}x")
    with pytest.raises(AccessDenied) as caught:
        Acker(url, namespace=namespace)
    assert_one_sentence_without_password(caught.value)


def test_a_missing_password_is_refused_in_one_sentence(server: Server, namespace: str) -> None:
    add_user(server, "default", "allkeys", "+@all", "resetpass", f">{PASSWORD}")
    with pytest.raises(AccessDenied) as caught:
        Acker(server.url, namespace=namespace)
    assert_one_sentence_without_password(caught.value)


@pytest.mark.parametrize("right", ["-evalsha", "-hset"])
def test_a_missing_right_is_refused_in_one_sentence(right: str, server: Server, namespace: str) -> None:
    url = add_user(server, "spark", "allkeys", "+@all", right)
    with pytest.raises(AccessDenied) as caught:
        Acker(url, namespace=namespace)
    assert_one_sentence_without_password(caught.value)


def test_a_user_who_may_not_load_scripts_is_told_so_in_one_sentence(server: Server, namespace: str) -> None:
    with server.client() as client:
        client.script_flush()
    with pytest.raises(ScriptsMissing) as caught:
        Acker(add_user(server, "spark", "allkeys", "+@all", "-script"), namespace=namespace, retry_for_s=0.1)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "run `redis-acker scripts load`" in str(caught.value)


def test_a_right_that_is_taken_away_later_is_missed_at_the_next_call(server: Server, namespace: str) -> None:
    with Acker(add_user(server, "spark", "allkeys", "+@all"), namespace=namespace) as acker:
        add_user(server, "spark", "-evalsha")
        with pytest.raises(AccessDenied) as caught:
            acker.allocate("orders", 1)
        assert_one_sentence_without_password(caught.value)


def test_neither_an_acker_nor_its_pickled_copy_shows_the_password(server: Server, namespace: str) -> None:
    with Acker(add_user(server, "spark", "allkeys", "+@all"), namespace=namespace) as acker:
        with pickle.loads(pickle.dumps(acker)) as copy:
            for shown in (repr(acker), str(acker), repr(copy), repr(copy.shards.transport), repr(acker.shards.keys)):
                assert PASSWORD not in shown
        assert "spark:***@" in repr(acker)
        assert PASSWORD in acker.urls[0]


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{PASSWORD}@127.0.0.1:1",
        f"redis://me:{PASSWORD}@127.0.0.1:1",
        f"redis://me:x@{PASSWORD}@127.0.0.1:1",
        f"redis://me:x/{PASSWORD}@127.0.0.1:1",
        f"redis://me:{PASSWORD}/x@127.0.0.1:1",
        f"redis://127.0.0.1:1?password={PASSWORD}",
        f"redis://127.0.0.1:1?password={PASSWORD}&db=1",
        f"unix://me:{PASSWORD}@/no/such.sock",
        f"redis+cluster://me:{PASSWORD}@127.0.0.1:1",
        f"redis+cluster://me:{PASSWORD}/x@127.0.0.1:1",
        f"redis+sentinel://me:{PASSWORD}@127.0.0.1:1/service",
        f"redis+sentinel://127.0.0.1:1/service?sentinel_password={PASSWORD}",
        f"http://me:{PASSWORD}@127.0.0.1:1",
        f"redis://me:{PASSWORD}@127.0.0.1:port",
        f"redis+cluster://me:{PASSWORD}@127.0.0.1:port",
        f"redis://me:{PASSWORD}@127.0.0.1:1?no_such_option=1",
    ],
)
def test_an_error_about_a_url_never_shows_its_password(url: str, namespace: str) -> None:
    with pytest.raises((BadInput, ServerUnavailable)) as caught:
        Acker(url, namespace=namespace, retry_for_s=0)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in hide_password(url)


def test_an_error_about_something_that_is_no_url_never_shows_the_passwords_beside_it() -> None:
    with pytest.raises(BadInput) as caught:
        Acker([f"redis://me:{PASSWORD}@127.0.0.1:1", 5])  # type: ignore[list-item]
    assert PASSWORD not in str(caught.value)
