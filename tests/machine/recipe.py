# SPDX-License-Identifier: Apache-2.0
"""What the machine consists of. Data only; a change here makes the next run build a new image."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """A release to boot; `keyring` is the package of the default suite that has its archive's keys,
    `hook` a shell command of mmdebstrap's, with the root in $1, after the packages are there."""

    packages: tuple[str, ...]
    components: str = "main"
    keyring: str | None = None
    hook: str | None = None


SUITE = "trixie"  # the default, and where the emulator is from
_ANY_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "udev",
    "dbus",
    "libpam-systemd",
    "kmod",
    "iproute2",
    "python3",
    "python3-pytest",
    "python3-pytest-timeout",
    "python3-pytest-xdist",
    "python3-hypothesis",
    "bubblewrap",
    "procps",
    "util-linux",
    "psmisc",
    "strace",
    "e2fsprogs",
    "quota",
    "curl",
    "git",
    "dmsetup",
    "init-system-helpers",
    "busybox-static",  # the initial RAM disk's only program
)
SUITES = {
    "trixie": Suite(
        (
            *_ANY_PACKAGES,
            "linux-image-cloud-amd64",
            "python3-dbus-fast",
            "python3-pystemd",
            "python3-pydantic",
            "python3-jinja2",
            "python3-aiohttp",
            "python3-rich",
            "apparmor",
            "autopkgtest",
            "dpkg-dev",  # autopkgtest reads debian/control with it
        )
    ),
    # Libraries older than sandboxd needs: its package brings its own.
    "bookworm": Suite((*_ANY_PACKAGES, "linux-image-cloud-amd64")),
    "noble": Suite(
        (*_ANY_PACKAGES, "linux-image-virtual", "apparmor"),
        components="main,universe",
        keyring="ubuntu-keyring",
        # With the formats of quotas; the packages that depend on them want all firmware, too.
        hook='chroot "$1" apt-get install --yes --no-install-recommends '
        '"linux-modules-extra-$(ls "$1/usr/lib/modules")"',
    ),
}
PATHS_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")

# The emulator is of the default suite, not of the host. Before 8.1 QEMU's threads race when the
# guest's kernel patches its own code (fixed by "accel/tcg: Always lock pages before translation"):
# about one boot in thirty died with an int3 oops.
EMULATOR_PACKAGES = ("qemu-system-x86", "qemu-utils")

# Program -> the host's Debian package that has it.
HOST_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "zstd": "zstd",
    "lz4": "lz4",
    "setpriv": "util-linux",
}
HOST_FILES = {"/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring"}

IMAGE_BYTES = 6 * 1024**3
MEMORY_BYTES = 4 * 1024**3
CPUS = 2
PORTS = 4  # how many commands can run beside each other in one machine

# What the root and the agent's ports need, unless this kernel has it built in, as it has ext4.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_console")
# `quota` keeps user quotas; loading its format is the kernel's first need on the root.
ROOT_FEATURES = "quota"
ROOT_MODULES = ("quota_v2",)

KERNEL_ARGUMENTS = (
    "console=ttyS0",
    "quiet",
    "psi=1",
    # A dead kernel ends the machine at once; -no-reboot turns the restart into an exit.
    "oops=panic",
    "panic=-1",
    # Emulated, the TSC is the host's clock: the watchdog that distrusts it would fall back to a
    # clock that costs a device access per reading.
    "tsc=reliable",
    "mitigations=off",
    "init_on_alloc=0",
    "audit=0",
    # Debian's but for tomoyo and bpf: loading systemd's bpf programs takes a seventh of the boot.
    "lsm=landlock,lockdown,yama,integrity,apparmor",
)
LEGACY_ARGUMENTS = (
    "systemd.unified_cgroup_hierarchy=0",
    "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
)

SOURCE_DIRECTORY = "/opt/sandboxd"
OUTPUT_DIRECTORY = "/output"
AGENT_DIRECTORY = "/usr/lib/machine"
AGENT_FILES = ("__init__.py", "agent.py", "command.py", "port.py", "trees.py", "wire.py")
DIRECTORIES = (SOURCE_DIRECTORY, OUTPUT_DIRECTORY, "/var/log/journal")

COMMAND_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "SANDBOXD_MACHINE_OUTPUT": OUTPUT_DIRECTORY,
}

INITIAL_PROGRAM = """\
#!/bin/busybox sh
busybox mount -t devtmpfs dev /dev
for module in @MODULES@; do busybox insmod "/$module.ko" || echo "initrd: cannot load $module"; done
tries=0
while [ ! -b /dev/vda ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { echo "initrd: no /dev/vda"; busybox poweroff -f; }
    busybox usleep 50000
done
busybox mount -t ext4 -o rw,noatime,usrquota /dev/vda /root || busybox poweroff -f
busybox mount -o move /dev /root/dev
exec busybox switch_root /root /sbin/init
"""

FILES = {
    "/etc/hostname": "machine\n",
    "/etc/hosts": "127.0.0.1 localhost machine\n::1 localhost\n",
    "/etc/machine-id": "5a9d6b0c6e0e4f0f8f2d3c1b7a695847\n",
    "/etc/systemd/journald.conf.d/machine.conf": (
        "[Journal]\nStorage=persistent\nRateLimitBurst=0\nSystemMaxUse=512M\n"
    ),
    # No watchdog resets the command's clock while a busy host lets the machine wait.
    "/etc/systemd/system.conf.d/machine.conf": "[Manager]\nDefaultTimeoutStartSec=180s\n",
    # Coldplug without the buses, whose drivers the kernel has or the machine does not need.
    "/etc/systemd/system/systemd-udev-trigger.service.d/machine.conf": (
        "[Service]\n"
        "ExecStart=\n"
        "ExecStart=-udevadm trigger --type=devices --action=add --prioritized-subsystem=block"
        " --subsystem-match=block --subsystem-match=mem --subsystem-match=misc"
        " --subsystem-match=net --subsystem-match=tty --subsystem-match=virtio-ports\n"
    ),
    "/etc/systemd/system/machine.target": (
        "[Unit]\n"
        "Description=Test machine is up\n"
        "Requires=multi-user.target\n"
        "After=multi-user.target\n"
        "Wants=machine-agent.service\n"
        "AllowIsolate=yes\n"
    ),
    "/etc/systemd/system/machine-agent.service": (
        "[Unit]\n"
        "Description=Test machine's agent\n"
        "After=multi-user.target\n"
        "[Service]\n"
        f"Environment=PYTHONPATH={AGENT_DIRECTORY}\n"
        "ExecStart=/usr/bin/python3 -S -m tests.machine.agent\n"
        "Restart=always\n"
        "OOMScoreAdjust=-1000\n"
        "OOMPolicy=continue\n"
    ),
    "/etc/systemd/system/machine-command@.service": (
        "[Unit]\n"
        "Description=Command in the test machine\n"
        "CollectMode=inactive-or-failed\n"
        "[Service]\n"
        "ExecStart=/bin/sh /run/machine/%i/script\n"
        "KillSignal=SIGKILL\n"
        "OOMPolicy=continue\n"
        "TasksMax=infinity\n"
        "LimitNOFILE=65536\n"
    ),
}
# The RAM disk mounts the root for good.
FILES_REMOVED = ("/etc/fstab",)
LINKS = {
    "/etc/systemd/system/default.target": "machine.target",
}
# Of no use in a machine that lives for one test run, or slow to start when emulated.
MASKED_UNITS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dev-hugepages.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "ldconfig.service",
    "modprobe@drm.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hibernate-clear.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-machine-id-commit.service",
    "systemd-modules-load.service",
    "systemd-pcrmachine.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-pstore.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-tpm2-setup-early.service",
    "systemd-tpm2-setup.service",
    "systemd-udev-load-credentials.service",
    "systemd-update-done.service",
)
