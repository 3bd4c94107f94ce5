# SPDX-License-Identifier: Apache-2.0
"""Owners of sandboxes: user names of uids, and OWNER/NAME for callers who see several owners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sandboxd.client.calls import Client, JsonObject
from sandboxd.errors import SandboxdError, SandboxNotFound

LIVE = "ready,suspended,releasing"
_LOOK = "`sandboxctl ls` shows what there is"


def user(uid: int) -> str:
    """Return the user name of a uid, or the uid as text if the uid has no name."""
    # Imported late: most commands need no user names.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def resolve(client: Client, ref: str) -> str:
    """Return the id for OWNER/NAME (owner: name or uid), else `ref`. Raises SandboxNotFound."""
    owner, slash, name = ref.partition("/")
    if not slash:
        return ref
    for sandbox in client.list_sandboxes(name=name, state=LIVE):
        if owner in {str(sandbox["owner_uid"]), user(sandbox["owner_uid"])}:
            return str(sandbox["id"])
    raise SandboxNotFound(f"cannot find sandbox {ref!r}", hint=_LOOK)


def explain(exc: SandboxNotFound, path: str, name: str) -> None:
    """Add a hint: OWNER/NAME if the name belongs to another owner's sandbox, else where to look."""
    if "/" in name or exc.hint:
        return
    exc.hint = _LOOK
    with suppress(SandboxdError):
        if found := " or ".join(_by_owner(Client(path), name)):
            exc.hint = f"it is another owner's: call it {found}"


def _by_owner(client: Client, name: str) -> Iterator[str]:
    sandbox: JsonObject
    for sandbox in client.list_sandboxes(name=name, state=LIVE):
        yield f"{user(sandbox['owner_uid'])}/{name}"
