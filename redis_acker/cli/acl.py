"""`redis-acker acl`: the rights that a part of the product needs on the server."""

from __future__ import annotations

import click

from redis_acker.cli.options import Store, store_options
from redis_acker.roles import ROLES


@click.command()
@click.option("--role", type=click.Choice(list(ROLES)), help="This role alone.")
@click.option("--user", metavar="NAME", help="Name of the user.  [default: NAMESPACE-ROLE]")
@store_options
def acl(store: Store, role: str | None, user: str | None) -> None:
    """Print least-privilege ACL rules for a role.

    \b
    executor   acks, fails and extends roots from a worker
    spout      drives spouts, with their retries and dead letters
    rotator    rotates expired roots into the failure streams
    inspector  looks, and changes nothing
    operator   runs the commands that act: drain, replay, dead, ...

    Each line is a command for redis-cli, to be run on every server. Nothing
    is asked or changed here. A user cannot log in before it has a password,
    and running its line again keeps the password.

    The rules are for Redis 6.2 and later, and for Valkey.

    \b
    Examples:
      redis-acker acl --namespace shop --role executor
      redis-acker acl -n shop --role rotator --user rota | redis-cli
      redis-cli ACL SETUSER rota '>a long password'
    """
    if user and not role:
        raise click.UsageError("--user names one user: add --role.")
    for one in [ROLES[role]] if role else list(ROLES.values()):
        name, rules = user or f"{store.namespace}-{one.name}", one.rules(store.namespace)
        if store.out.as_json:
            data = {"role": one.name, "user": name, "purpose": one.purpose, "rules": rules}
            store.out.lines("acl", [data])
        else:
            store.out.line(" ".join(["ACL SETUSER", name, *rules]))
    store.out.note("Give each user a password: ACL SETUSER <user> '>a long password'")
