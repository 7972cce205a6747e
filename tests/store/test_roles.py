"""The rights of each role: what its scripts need, bound to the keys they need it for."""

import pytest

from redis_acker.errors import BadInput
from redis_acker.store.roles import ROLES, role

NARROW = [one for one in ROLES.values() if one.rights]
WITHOUT_KEYS = {"cluster|slots", "command", "evalsha", "info", "ping", "script|exists", "script|load", "select", "time"}


@pytest.mark.parametrize("one", NARROW, ids=lambda one: one.name)
def test_every_command_on_keys_is_bound_to_keys(one: object) -> None:
    narrow = role(one.name)  # type: ignore[attr-defined]
    bound = {command for right in narrow.rights for command in right.commands}
    assert narrow.all_commands() - bound <= WITHOUT_KEYS
    assert bound <= narrow.all_commands(), "no right is left over from a script that has changed"


@pytest.mark.parametrize("name", ROLES)
def test_rules_without_selectors_allow_the_same_commands(name: str) -> None:
    flat = {rule for rule in role(name).rules("x", selectors=False) if rule.startswith("+")}
    assert flat == {f"+{command}" for command in role(name).all_commands()}
    words = " ".join(role(name).rules("x")).replace("(", "").replace(")", "").split()
    assert flat == {word for word in words if word.startswith("+")}
    assert "clearselectors" not in role(name).rules("x", selectors=False)


def test_a_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="the roles are executor, spout"):
        role("king")
