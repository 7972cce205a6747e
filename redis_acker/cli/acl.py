"""`redis-acker acl`: the rights that each role needs on the server."""

from __future__ import annotations

import click

from redis_acker.cli.options import Store, store_options
from redis_acker.store.roles import ROLES


@click.command()
@click.option("--role", type=click.Choice(list(ROLES)), help="Only this role.")
@click.option("--user", metavar="NAME", help="The user's name.  [default: NAMESPACE-ROLE]")
@click.option("--without-selectors", is_flag=True, help="For Redis 6.2: broader rights for executor and rotator.")
@store_options
def acl(store: Store, role: str | None, user: str | None, without_selectors: bool) -> None:
    """Print least-privilege ACL rules for a role.

    \b
    executor   works on Spark jobs and tuples: init, ack, fail, extend
    spout      drives spouts, with their retries and dead letters
    rotator    rotates expired roots into the failure streams
    inspector  reads, and changes nothing
    operator   runs the commands that act: drain, replay, dead, ...

    Each line is a command for redis-cli: run it on every server. This command
    itself contacts no server. A user needs a password before it can log in;
    running its line again keeps the password.

    The rules are for Redis 7.0 or later, and for Valkey. Redis 6.2 cannot
    bind commands to keys: there, use --without-selectors. SECURITY.md says
    what each role can and cannot do.

    \b
    Examples:
      redis-acker acl --namespace shop --role executor
      redis-acker acl -n shop --role rotator --user rota | redis-cli
      redis-cli ACL SETUSER rota '>a long password'
    """
    if user and not role:
        raise click.UsageError("--user names one user: add --role.")
    for one in [ROLES[role]] if role else list(ROLES.values()):
        name, rules = (
            user or f"{store.namespace}-{one.name}",
            one.rules(store.namespace, selectors=not without_selectors),
        )
        if store.out.as_json:
            data = {"role": one.name, "user": name, "purpose": one.purpose, "rules": rules}
            store.out.lines("acl", [data])
        else:
            store.out.line(" ".join(["ACL SETUSER", name, *rules]))
    store.out.note("Give each user a password: ACL SETUSER <user> '>a long password'")
