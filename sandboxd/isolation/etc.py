# SPDX-License-Identifier: Apache-2.0
"""The part of the host's /etc that a sandbox sees: all that every user may read, less a list.

Programs keep configuration in /etc, so a sandbox sees the directory by default. Left out are files
that name this host or its people, files that say who may do what on the host, and files with
passwords that every user may read. Files that only root may read are safe by permissions.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from sandboxd.isolation.layers import Mask

TOP = "/etc"
_HOST = (
    "adjtime", "aliases", "aliases.db", "blkid.conf", "blkid.tab", "crypttab", "domainname",
    "exports", "exports.d", "fstab", "fstab.d", "group", "grub*", "gshadow", "hostid", "hostname",
    "hosts", "hosts.allow", "hosts.deny", "iscsi", "issue", "issue.d", "issue.net", "kernel",
    "krb5.*", "lvm", "machine-id", "machine-info", "mailname", "mdadm", "mdadm.conf", "motd",
    "motd.d", "mtab", "multipath", "multipath.conf", "nvme", "passwd", "shadow", "subgid",
    "subuid", "update-motd.d", "vconsole.conf",
)  # fmt: skip
_RIGHTS = (
    "anacrontab", "apparmor*", "at.allow", "at.deny", "audit", "authselect", "cron*", "doas.conf",
    "incron*", "pam.conf", "pam.d", "polkit-1", "security", "securetty", "ssh", "sudo*",
)  # fmt: skip
_NETWORK = (
    "NetworkManager", "auto.*", "auto_*", "autofs*", "dhclient*", "dhcp*", "dnsmasq*",
    "ethers", "firewalld", "freeradius", "hostapd", "ifplugd", "ipsec*", "iptables*", "iwd",
    "ldap*", "netplan", "network", "networkd-dispatcher", "networks", "nftables*", "nslcd*",
    "nsswitch.conf", "openldap", "openvpn", "ppp", "raddb", "resolv.conf", "resolv.conf*",
    "resolvconf*", "samba", "sssd", "strongswan*", "swanctl", "sysconfig", "tinc", "ufw",
    "wireguard", "wpa_supplicant",
)  # fmt: skip
_SERVICES = (
    "ansible", "apache2", "asterisk", "bind", "caddy", "ceph", "chef", "chrony*", "cinc",
    "cloud", "cni", "consul*", "containerd", "couchdb", "crio", "cups", "datadog*",
    "default", "docker", "dovecot", "elasticsearch", "environment", "environment.d", "etcd*",
    "exim*", "filebeat", "fluent*", "frr", "gitlab*", "gitea", "glusterfs", "grafana", "haproxy",
    "httpd", "icinga*", "incus", "influxdb", "init", "init.d", "jenkins", "keepalived", "kibana",
    "kubernetes", "letsencrypt", "libvirt", "lighttpd", "logrotate*", "logstash", "lxc", "lxd",
    "minio", "mongod*", "monit*", "mosquitto", "munin", "my.cnf*", "mysql", "nagios*", "named*",
    "netdata", "newrelic*", "nginx", "nomad*", "ntp*", "nrpe*", "openldap", "postfix",
    "postgresql", "postgresql-common", "prometheus", "proftpd", "pulp", "puppet*", "rabbitmq",
    "rancher", "rc*.d", "redis*", "rsnapshot*", "rsync*", "rsyslog*", "salt", "sandboxd", "sasl2",
    "snmp", "squid", "sssd", "stunnel*", "supervisor*", "syslog*", "systemd", "telegraf", "tor",
    "unbound", "vault*", "vsftpd*", "xinetd*", "zabbix*",
)  # fmt: skip
_CREDENTIALS = (
    "apt", "aws", "boto*", "bareos", "bacula", "borg*", "curlrc", "davfs2", "dnf", "duo",
    "gitconfig", "google*", "mercurial", "msmtprc", "netrc", "npmrc", "pacman*", "pip.conf",
    "rclone*", "restic", "rhsm", "s3cfg", "ssmtp", "subversion", "wgetrc", "yum*", "zypp",
)  # fmt: skip
# Copies of files, and the state of tools such as etckeeper.
_COPIES = (".*", "*-", "*~", "*.bak*", "*.old", "*.orig", "*.save", "*.swp", "*.dpkg-*", "*.ucf-*",
           "*.rpmnew", "*.rpmorig", "*.rpmsave", "*.pacnew", "*.pacsave")  # fmt: skip
_HIDDEN = (*_HOST, *_RIGHTS, *_NETWORK, *_SERVICES, *_CREDENTIALS, *_COPIES)
_SHOWN = frozenset((".java",))
_WILD = frozenset("*?[")


def mask(more_hidden: Collection[str], system_paths: Collection[str], own: Collection[str]) -> Mask:
    """Return the mask of /etc for a sandbox.

    more_hidden: names or patterns directly below /etc, added by an admin. system_paths: paths below
    /etc that are seen even if a pattern hides them. own: names for which the sandbox has files.
    """
    wanted = [path for path in system_paths if path == TOP or path.startswith(f"{TOP}/")]
    shown = {os.path.relpath(path, TOP) for path in wanted if os.path.exists(path)}
    hidden = set() if "." in shown else _names((*_HIDDEN, *more_hidden)) - _SHOWN
    return Mask(
        hidden=tuple(sorted(hidden - shown - set(own))),
        own=tuple(sorted(own)),
        kept=tuple(sorted(path for path in shown if path.split("/")[0] in hidden and "/" in path)),
    )


def entries(seen: Mask) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return /etc without overlays: binds (on the host, inside), links (target, inside)."""
    readable, links = [], []
    for name in sorted(set(os.listdir(TOP)) - {*seen.hidden, *seen.own}):
        path = f"{TOP}/{name}"
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path) or os.path.isfile(path):
            readable.append((path, path))
    readable += [(f"{TOP}/{path}", f"{TOP}/{path}") for path in seen.kept]
    return readable, links


def _names(patterns: Sequence[str]) -> set[str]:
    """Return the hidden names. Patterns without wildcards count even before the file exists."""
    wild = [pattern for pattern in patterns if _WILD & set(pattern)]
    found = {name for name in os.listdir(TOP) if any(fnmatchcase(name, one) for one in wild)}
    return found | (set(patterns) - set(wild))
