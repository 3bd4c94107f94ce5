# SPDX-License-Identifier: Apache-2.0
"""Settings: command line over environment (SANDBOX_*) over the file (lower case, no prefix)."""

from __future__ import annotations

import argparse
import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sandboxd import __version__
from sandboxd.core.limits import DEFAULT_CPU_WEIGHT, LIMITS, MAX_CPU_WEIGHT
from sandboxd.core.model import Limits
from sandboxd.core.policy import (
    DEFAULT_RESERVE_BYTES,
    DEFAULT_UID_COUNT,
    DEFAULT_UID_FIRST,
    MIN_MEMORY_BYTES,
    Budget,
    CallerQuota,
    LimitPolicy,
    TaskBudget,
)
from sandboxd.core.quantity import parse_bytes, parse_cpus, parse_seconds
from sandboxd.errors import ConfigError

DEFAULT_FILE = "/etc/sandboxd/sandboxd.toml"
DEFAULT_SOCKET = "/run/sandboxd/sandboxd.sock"
DEFAULT_STATE_DIRECTORY = "/var/lib/sandboxd"
DEFAULT_RUNTIME_DIRECTORY = "/run/sandboxd"
_PREFIX = "SANDBOX_"


def _scalar(value: object) -> object:
    """Return `value` if a number or a string; TOML has more types. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number or a string")
    return value


def _paths(value: object) -> object:
    """Return a TOML list unchanged, and the environment's comma-separated text as a tuple."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _addresses(value: object) -> object:
    """Parse a list of networks in CIDR form. Raises ValueError."""
    parts = _paths(value)
    if not isinstance(parts, list | tuple):
        raise ValueError("must be a list of addresses")
    # ip_network refuses an address with bits set below the prefix, such as 10.0.0.1/8.
    return tuple(ipaddress.ip_network(part) for part in parts)


def _flag(value: object) -> bool:
    """Return a TOML boolean, or the environment's `true` or `false`. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("must be true or false")


def _unless_unlimited(value: object) -> object:
    """Return None for `unlimited`, else `value`."""
    return None if value == "unlimited" else value


# pydantic runs the last BeforeValidator first.
_Bytes = Annotated[int, BeforeValidator(parse_bytes), BeforeValidator(_scalar)]
_BytesOrUnlimited = Annotated[_Bytes | None, BeforeValidator(_unless_unlimited)]
_Seconds = Annotated[float, BeforeValidator(parse_seconds), BeforeValidator(_scalar)]
_Cpus = Annotated[float, BeforeValidator(parse_cpus), BeforeValidator(_scalar)]
_Paths = Annotated[tuple[str, ...], BeforeValidator(_paths)]
_Hint = Literal["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "NODE_OPTIONS", "GOMEMLIMIT", "GOMAXPROCS"]
_EtcName = Annotated[str, Field(pattern=r"^[^/\x00]+$")]
_Addresses = Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_addresses)]
_Networks = Annotated[
    tuple[Literal["none", "loopback", "host"], ...],
    Field(min_length=1),
    BeforeValidator(_paths),
]
_Flag = Annotated[bool, BeforeValidator(_flag)]
_Weight = Annotated[int, Field(ge=1, le=MAX_CPU_WEIGHT), BeforeValidator(_scalar)]
_Count = Annotated[int, Field(ge=1, le=1 << 31), BeforeValidator(_scalar)]


class Config(BaseModel):
    """All settings, with defaults and bounds; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cgroup_mode: Literal["auto", "required", "off"] = "auto"
    isolation: Literal["auto", "none", "basic", "standard", "strict"] = "auto"
    isolation_minimum: Literal["none", "basic", "standard", "strict"] = "none"
    """The least isolation that a request may ask for."""
    networks: _Networks = ("none", "loopback", "host")
    """The networks that a request may ask for."""
    images_directory: str | None = None
    """Where the roots are that a request may name as `rootfs`."""
    system_paths: _Paths = ("/opt",)
    """What else of the host is seen, read-only, in a root of its own; missing ones are left out."""
    etc_hidden: Annotated[tuple[_EtcName, ...], BeforeValidator(_paths)] = ()
    """What of the host's /etc is not seen, beside what never is: names in it, or patterns."""
    bind_paths: _Paths = ()
    """What a request may bind: /path, or /path:rw."""
    denied_addresses: _Addresses = ()
    """What no sandbox may reach, beside where clouds tell keys, under systemd: 10.0.0.0/8, ::1."""
    cpu_quota: _Cpus = 2.0
    cpu_weight: _Weight = DEFAULT_CPU_WEIGHT
    memory_limit_bytes: _Bytes | None = None
    pids_limit: _Count = 512
    worker_memory_reserve_bytes: _Bytes = DEFAULT_RESERVE_BYTES
    address_space_limit_bytes: _BytesOrUnlimited = None
    disk_limit_bytes: _Bytes = 10 << 30
    disk_means: Literal["auto", "quota", "image", "count"] = "auto"
    """By what disk limits are held: quota and image refuse to start where the host cannot."""
    disk_floor_bytes: _Bytes | None = None
    io_read_bytes_per_second: _Bytes = 256 << 20
    io_write_bytes_per_second: _Bytes = 256 << 20
    io_device: str | None = None
    ready_file: str | None = None
    timeout_seconds: _Seconds = 300.0
    max_output_bytes: _Bytes = 10 << 20
    open_files: _Count = 1024
    admin_group: str | None = None
    socket_group: str | None = None
    """Who may connect to a socket that the daemon makes itself; None: the admin group."""
    log_arguments: _Flag = False
    log_level: Literal["debug", "info", "warning"] = "info"
    """debug: every request and every start of an execution as well."""
    runtime_hints: Annotated[tuple[_Hint, ...], BeforeValidator(_paths)] = (
        "JDK_JAVA_OPTIONS",
        "NODE_OPTIONS",
        "GOMEMLIMIT",
        "GOMAXPROCS",
    )
    """Variables that tell runtimes a sandbox's limits, where those cannot read them."""
    max_executions: _Count = 64
    max_sandboxes_per_caller: _Count | None = None
    max_memory_bytes_per_caller: _Bytes | None = None
    max_executions_per_caller: _Count | None = None
    max_pids_per_caller: _Count | None = None
    max_record_bytes_per_caller: _Bytes = 32 << 20
    """Environment, metadata and arguments of what lives; the daemon keeps them in memory."""
    max_memory_bytes: _Bytes | None = None
    max_cpus: _Cpus | None = None
    max_cpu_weight: _Weight | None = None
    max_pids: _Count | None = 32768
    max_io_read_bytes_per_second: _Bytes | None = None
    max_io_write_bytes_per_second: _Bytes | None = None
    max_disk_bytes: _Bytes | None = None
    max_timeout_seconds: _Seconds | None = 7 * 86400.0
    max_cpu_seconds: _Seconds | None = None
    max_max_output_bytes: _Bytes | None = 4 << 30
    max_open_files: _Count | None = 1 << 20
    max_file_size_bytes: _Bytes | None = None
    retention_seconds: _Seconds = 3600.0
    retention_executions: _Count = 2000
    retention_output_bytes: _Bytes = 2 << 30
    retention_argument_bytes: _Bytes = 64 << 20
    uid_first: _Count = DEFAULT_UID_FIRST
    uid_count: Annotated[int, Field(ge=1, le=1 << 20)] = DEFAULT_UID_COUNT

    def caller_quota(self) -> CallerQuota:
        """Return the quota for the sum over all sandboxes of an owner."""
        return CallerQuota(
            sandboxes=self.max_sandboxes_per_caller,
            memory_bytes=self.max_memory_bytes_per_caller,
            executions=self.max_executions_per_caller,
            pids=self.max_pids_per_caller,
            record_bytes=self.max_record_bytes_per_caller,
        )

    def limit_policy(self, budget: Budget, tasks: TaskBudget) -> LimitPolicy:
        """Return default and greatest limits. Raises ConfigError if a default exceeds the host."""
        memory = budget.default_memory(self.memory_limit_bytes)
        if memory < MIN_MEMORY_BYTES:
            raise ConfigError(
                f"cannot start: a default memory limit of {memory} bytes is too small",
                hint=f"set SANDBOX_MEMORY_LIMIT_BYTES to at least {MIN_MEMORY_BYTES}",
            )
        if self.pids_limit > tasks.largest and "pids_limit" in self.model_fields_set:
            raise ConfigError(
                f"cannot start: a default of {self.pids_limit} pids is more than the "
                f"{tasks.largest} that one sandbox may have here ({tasks.source})",
                hint="lower SANDBOX_PIDS_LIMIT, or raise what the host may have",
            )
        values: dict[str, Any] = {
            limit.name: None if limit.setting is None else getattr(self, limit.setting)
            for limit in LIMITS
        }
        values |= {"memory_bytes": memory, "pids": min(self.pids_limit, tasks.largest)}
        maxima = {limit.name: getattr(self, f"max_{limit.name}") for limit in LIMITS}
        maxima["pids"] = min(tasks.largest, self.max_pids or tasks.largest)
        bounds = {name: bound for name, bound in maxima.items() if bound is not None}
        return LimitPolicy(Limits(**values), bounds)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of `sandboxd`'s command line."""
    parser = argparse.ArgumentParser(
        prog="sandboxd", description="Run untrusted commands under limits; see sandboxctl.",
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"sandboxd {__version__}")
    parser.add_argument("--config", metavar="FILE", help=f"settings (default {DEFAULT_FILE})")
    parser.add_argument(
        "--socket", metavar="PATH", default=named_socket(),
        help="Unix socket of the API (default: $SANDBOXD_SOCKET, else RUNTIME_DIR/sandboxd.sock, "
        "or as handed over)",
    )  # fmt: skip
    parser.add_argument(
        "--state-dir", metavar="DIR", default=DEFAULT_STATE_DIRECTORY,
        help="sandboxes and records (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--runtime-dir", metavar="DIR", default=DEFAULT_RUNTIME_DIRECTORY,
        help="sockets (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--private", action="store_true",
        help="end with standard input, and with it all work, records and both directories",
    )  # fmt: skip
    parser.add_argument(
        "--stop-all", action="store_true",
        help="serve nothing: end all work of a stopped daemon on this state directory, then exit",
    )  # fmt: skip
    return parser


def load(path: str | None, environment: Mapping[str, str]) -> Config:
    """Read the settings; path: None = the default file, maybe missing. Raises ConfigError."""
    values = _read_file(path)
    for name in Config.model_fields:
        text = environment.get(_PREFIX + name.upper())
        if text is not None and text != "":
            values[name] = text
    try:
        return Config.model_validate(values)
    except ValidationError as exc:
        problems = "; ".join(
            _no_such(str(error["loc"][0]), Config.model_fields)
            if error["type"] == "extra_forbidden"
            else f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
            for error in exc.errors()
        )
        raise ConfigError(f"cannot accept the settings: {problems}") from exc


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Return a complaint for each SANDBOX_ variable that is no setting, perhaps a foreign one."""
    known = [_PREFIX + name.upper() for name in Config.model_fields]
    return [
        _no_such(name, known)
        for name in environment
        if name.startswith(_PREFIX) and name not in known
    ]


def _no_such(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name}: there is no such setting" + (f" (perhaps {near[0]})" if near else "")


def _read_file(path: str | None) -> dict[str, Any]:
    try:
        with open(path or DEFAULT_FILE, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as exc:
        if path is None:
            return {}
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    except (OSError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"cannot read {path or DEFAULT_FILE}: {exc}") from exc


def socket_named_by(path: str | None) -> str:
    """Return the option or variable that decides the API's socket. path: the parsed --socket."""
    if not path:
        return "--runtime-dir"
    return "SANDBOXD_SOCKET" if path == named_socket() else "--socket"


def named_socket() -> str | None:
    """Return $SANDBOXD_SOCKET, which server, client and sandboxctl share; None if unset."""
    return os.environ.get("SANDBOXD_SOCKET") or None
