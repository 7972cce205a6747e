"""`redis-acker doctor`: checks servers, settings and the namespace, and says what to fix."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import click
import redis

from redis_acker.cli import exits
from redis_acker.cli.findings import Finding, of_clocks, of_foreign, of_rotation, of_server, of_streams
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.output import counted
from redis_acker.errors import AckerError, UnknownNamespace
from redis_acker.store.acker import Acker
from redis_acker.store.connect import open_servers
from redis_acker.store.keys import key_prefix
from redis_acker.store.scripts import every_script
from redis_acker.views.overview import read_overview
from redis_acker.views.readers import read_streams
from redis_acker.views.rights import missing_rights
from redis_acker.views.servers import ask, clients_of, read_servers

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command()
@store_options
@click.pass_context
def doctor(ctx: click.Context, store: Store) -> None:
    """Check servers and settings, and say what to fix.

    Looks at the reachability and latency of every server, version, eviction,
    memory, persistence, replication, clocks, rights, scripts, rotation, and
    streams that nobody reads. Warns where a managed service does not let it
    look. Changes nothing. The exit code is 1 if a finding is bad.

    \b
    Examples:
      redis-acker doctor --url redis://localhost:6379
      redis-acker doctor --json | jq 'select(.level != "ok")'
    """
    levels: Counter[str] = Counter()
    for finding in _findings(store):
        levels[finding.level] += 1
        if store.out.as_json:
            store.out.document("finding", asdict(finding))
        else:
            _show(store, finding)
    if not store.out.as_json:
        store.out.line()
        store.out.line(f"{levels['ok']} ok, {levels['warn']} warnings, {levels['bad']} bad")
    if levels["bad"]:
        ctx.exit(exits.PROBLEM)


def _show(store: Store, finding: Finding) -> None:
    level = store.out.style(f"{finding.level:<4}", fg=_COLOURS[finding.level], bold=finding.level == "bad")
    store.out.item(f"{level}  {finding.check:<12}", f"{finding.where}: {finding.text}", indent=18)
    if finding.remedy:
        store.out.item(" " * 18, f"-> {finding.remedy}", indent=21)


def _findings(store: Store) -> Iterator[Finding]:
    servers = open_servers(store.target, partial(key_prefix, store.namespace))
    try:
        acker = _opened(store)
        shards = range(acker.settings.shards if isinstance(acker, Acker) else servers.default_shards)
        views = read_servers(servers, shards)
        for view in views:
            yield from of_server(view)
        yield from of_clocks(views)
        reached = {view.address for view in views if not view.error}
        for client, address, _ in clients_of(servers, shards):
            if client is not None and address in reached:
                yield from _scripts(client, address)
                yield from _rights(client, address, store.namespace)
        if len(reached) == len(views):
            yield from _namespace(store.namespace, acker)
    finally:
        servers.close()


def _opened(store: Store) -> Acker | AckerError:
    """The namespace, or why it cannot be opened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an eviction policy is a finding of its own
        try:
            return store.acker
        except AckerError as error:
            return error


def _scripts(client: redis.Redis, address: str) -> Iterator[Finding]:
    known = every_script()
    reply = ask(client, "SCRIPT", "EXISTS", *(one.sha for one in known))
    if reply is None:
        remedy = "Ask as a user who may: executors and inspectors neither load scripts nor look which are there."
        yield Finding("warn", "scripts", address, "cannot be checked: SCRIPT EXISTS is forbidden", remedy)
    else:
        text = f"{sum(map(int, reply))} of {len(known)} in the server's cache; a driver or rotator loads the others"
        yield Finding("ok", "scripts", address, text)


def _rights(client: redis.Redis, address: str, namespace: str) -> Iterator[Finding]:
    missing = missing_rights(client, namespace)
    remedy = "Run redis-acker acl for the rules of each role."
    if missing is None:
        text = "cannot be checked: the server is older than Redis 7.0, or forbids ACL DRYRUN"
        yield Finding("warn", "rights", address, text, remedy)
        return
    roles = [role for role, commands in missing.items() if not commands]
    if roles:
        yield Finding("ok", "rights", address, f"enough for the roles {', '.join(roles)}")
    else:
        role, commands = min(missing.items(), key=lambda pair: len(pair[1]))
        text = f"not enough for any role; the role {role} also needs {', '.join(commands)}"
        yield Finding("bad", "rights", address, text, remedy)


def _namespace(name: str, acker: Acker | AckerError) -> Iterator[Finding]:
    """Findings about the namespace, or why it could not be opened."""
    if isinstance(acker, UnknownNamespace):
        yield Finding("warn", "namespace", name, "does not exist", "Check its name; first use creates it.")
        return
    try:
        if isinstance(acker, AckerError):
            raise acker
        view = read_overview(acker)
        shards = counted(view.settings.shards, "shard")
        yield Finding("ok", "namespace", name, f"{view.pending:,} roots pending in {shards}")
        yield from of_rotation(view)
        yield from of_foreign(view)
        yield from of_streams(read_streams(acker))
    except AckerError as error:
        yield Finding("bad", "namespace", name, str(error), "docs/errors.md explains it.")
