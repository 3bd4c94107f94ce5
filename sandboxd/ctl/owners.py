# SPDX-License-Identifier: Apache-2.0
"""Whose a sandbox is: uids as names of users, and OWNER/NAME for those who see others' ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sandboxd.client.calls import Client, JsonObject
from sandboxd.errors import SandboxdError, SandboxNotFound

LIVE = "ready,suspended,releasing"


def user(uid: int) -> str:
    """The name of a user, or the uid where it has none."""
    # Not among what every command loads.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def resolve(client: Client, ref: str) -> str:
    """The id for OWNER/NAME, with an owner's name or uid; any other reference as it is.

    Raises SandboxNotFound.
    """
    owner, slash, name = ref.partition("/")
    if not slash:
        return ref
    for sandbox in client.list_sandboxes(name=name, state=LIVE):
        if owner in {str(sandbox["owner_uid"]), user(sandbox["owner_uid"])}:
            return str(sandbox["id"])
    raise SandboxNotFound(f"cannot find sandbox {ref!r}", hint="sandboxctl ls shows all")


def explain(exc: SandboxNotFound, path: str, name: str) -> None:
    """Hint at what to call a sandbox of another owner's that was not found by its name alone."""
    if "/" in name or exc.hint:
        return
    with suppress(SandboxdError):
        if found := " or ".join(_by_owner(Client(path), name)):
            exc.hint = f"it is another owner's: call it {found}"


def _by_owner(client: Client, name: str) -> Iterator[str]:
    sandbox: JsonObject
    for sandbox in client.list_sandboxes(name=name, state=LIVE):
        yield f"{user(sandbox['owner_uid'])}/{name}"
