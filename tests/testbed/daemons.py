"""What runs on a host: a holder of its mount and host name spaces, a real sshd and a real dockerd.

The holder keeps one mount name space a host alive. In it the accounts are the testbed's own, other hosts' folders are hidden,
and so is the checkout on every host but the head: a worker can only use what was brought to it. As every mount of the host's
dockerd is made in there too, they all vanish with the last process, also after a crash.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path

from supervisor.runners import procid
from supervisor.runners.procid import ProcessId
from tests.testbed import network, processes
from tests.testbed.layout import IPV6_PREFIX, NETWORKS, HostPlan, Layout
from tests.testing.checkout import CHECKOUT

# Accounts: login name, uid, login shell. Those with uid 0 are root under another shell; ops may not use Docker.
ACCOUNTS = (
    ("root", 0, "/bin/bash"),
    ("bashy", 0, "/bin/bash"),
    ("dashy", 0, "/bin/dash"),
    ("fishy", 0, "/usr/bin/fish"),
    ("ops", 64010, "/bin/bash"),
)
START_DEADLINE_S = 60.0


def start_holder(layout: Layout, host: HostPlan) -> ProcessId:
    """Make the host's name spaces and return the process that keeps them."""
    ready = host.folder / "ready"
    ready.unlink(missing_ok=True)
    script = "\n".join(["set -e", *_mounts(layout, host), f": > {shlex.quote(str(ready))}", "exec sleep infinity"])
    space = ["nsenter", f"--net={network.NETNS / host.name}", "--", "unshare", "--mount", "--uts", "--propagation", "private"]
    who = processes.start([*space, "sh", "-c", script], host.folder / "log/holder.log")
    processes.wait_until(ready.exists, START_DEADLINE_S, f"{host.name} has no name spaces (see {host.folder}/log/holder.log)")
    return who


def _mounts(layout: Layout, host: HostPlan) -> list[str]:
    own = shlex.quote(str(host.folder))
    lines = [f"echo {host.name} > /proc/sys/kernel/hostname"]
    lines += [f"mount --bind {own}/etc/{name} /etc/{name}" for name in ("passwd", "shadow")]
    hidden = [other.folder for other in layout.hosts if other != host]
    if host.number != 1:
        hidden.append(CHECKOUT)
    return lines + [f"mount -t tmpfs -o size=4k,mode=755 hidden {shlex.quote(str(folder))}" for folder in hidden]


def entry(host: HostPlan, holder: ProcessId, folder: Path | None = None) -> list[str]:
    """The words in front of a command that make it run on the host. ``folder`` is where it starts, as seen there."""
    return ["nsenter", f"--target={holder.pid}", "--net", "--mount", "--uts", f"--wdns={folder or host.home}", "--"]


def write_accounts(host: HostPlan) -> None:
    """The host's own account files. No password works; the lines in shadow keep sshd from calling the accounts locked."""
    etc = host.folder / "etc"
    etc.mkdir(parents=True, exist_ok=True)
    system = [line for line in Path("/etc/passwd").read_text().splitlines() if line.split(":")[0] not in {a[0] for a in ACCOUNTS}]
    own = [f"{name}:x:{uid}:{0 if uid == 0 else 65534}::{_home(host, uid)}:{shell}" for name, uid, shell in ACCOUNTS]
    for _, uid, _ in ACCOUNTS:
        _home(host, uid).mkdir(exist_ok=True)
        os.chown(_home(host, uid), uid, -1)
    (etc / "passwd").write_text("\n".join(own + system) + "\n")
    shadow = etc / "shadow"
    shadow.touch(mode=0o600)
    shadow.write_text("".join(f"{name}:*:20000::::::\n" for name, _, _ in ACCOUNTS))


def _home(host: HostPlan, uid: int) -> Path:
    return host.home if uid == 0 else host.folder / f"home-{uid}"


def write_keys(layout: Layout) -> None:
    """A host key each, one key of the head's user that every host accepts, and the head's ssh configuration."""
    head = layout.hosts[0]
    ssh = head.home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700, exist_ok=True)
    for host in layout.hosts:
        host.home.mkdir(parents=True, exist_ok=True)
        _keygen(host.folder / "etc/host_key", host.name)
    _keygen(ssh / "id_ed25519", head.name)
    public = (ssh / "id_ed25519.pub").read_text()
    for host in layout.hosts:
        (host.folder / "etc/authorized_keys").write_text(public)
    write_known_hosts(layout)
    (ssh / "config").write_text("".join(_alias(host, ssh) for host in layout.hosts))
    (ssh / "config").chmod(0o600)


def write_known_hosts(layout: Layout) -> None:
    """Let the head know every host's present key under all of its addresses."""
    lines = []
    for host in layout.hosts:
        addresses = [host.address(n) for n in NETWORKS] + [f"{IPV6_PREFIX}{host.number}"]
        lines.append(",".join(addresses) + " " + (host.folder / "etc/host_key.pub").read_text())
    (layout.hosts[0].home / ".ssh/known_hosts").write_text("".join(lines))


def new_host_key(host: HostPlan) -> None:
    """Give the host another key, as a reinstalled machine has; the head still knows the old one. sshd needs a restart."""
    for name in ("host_key", "host_key.pub"):
        (host.folder / "etc" / name).unlink()
    _keygen(host.folder / "etc/host_key", host.name)


def _keygen(path: Path, comment: str) -> None:
    if not path.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True)


def _alias(host: HostPlan, ssh: Path) -> str:
    shared = (
        f"  User root\n  IdentityFile {ssh}/id_ed25519\n  UserKnownHostsFile {ssh}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    forms = {"": host.address(), "-lan": host.address(NETWORKS[2]), "-v6": f"{IPV6_PREFIX}{host.number}"}
    return "".join(f"Host {host.name}{suffix}\n  HostName {address}\n{shared}" for suffix, address in forms.items())


def start_sshd(host: HostPlan, holder: ProcessId) -> ProcessId:
    """Start the host's sshd on its own addresses and wait until it takes connections."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own wish (privilege separation)
    config = host.folder / "etc/sshd_config"
    config.write_text(_sshd_config(host))
    log = host.folder / "log/sshd.log"
    heard = log.read_text().count("Server listening") if log.exists() else 0
    listening = len(NETWORKS) + 1
    who = processes.start([*entry(host, holder), "/usr/sbin/sshd", "-D", "-e", "-f", str(config)], log)
    processes.wait_until(
        lambda: log.read_text().count("Server listening") >= heard + listening,
        START_DEADLINE_S,
        f"sshd of {host.name} does not listen (see {log})",
    )
    return who


def _sshd_config(host: HostPlan) -> str:
    listen = [host.address(n) for n in NETWORKS] + [f"[{IPV6_PREFIX}{host.number}]:22"]
    settings = {
        "HostKey": f"{host.folder}/etc/host_key",
        "PidFile": "none",
        "AuthorizedKeysFile": f"{host.folder}/etc/authorized_keys",
        "StrictModes": "no",
        "UsePAM": "no",
        "UseDNS": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "PrintMotd": "no",
        "SetEnv": f"PATH={host.path}",
        "MaxStartups": "100",
    }
    return "".join(f"ListenAddress {a}\n" for a in listen) + "".join(f"{k} {v}\n" for k, v in settings.items())


def start_dockerd(host: HostPlan, holder: ProcessId) -> ProcessId:
    """Start the host's dockerd; :func:`wait_docker` waits for it."""
    data = host.folder / "docker"
    data.mkdir(exist_ok=True)
    (data / "daemon.json").write_text("{}\n")
    (data / "pid").unlink(missing_ok=True)
    argv = ["dockerd", f"--config-file={data}/daemon.json", f"--data-root={data}/data", f"--exec-root={data}/exec"]
    argv += [f"--host=unix://{host.docker_socket}", f"--pidfile={data}/pid", "--iptables=false", "--ip6tables=false"]
    argv += ["--bridge=none", "--log-level=warn"]
    # containerd writes its stacks into the folder for temporary files when dockerd loses patience with it
    environ = {**os.environ, "TMPDIR": str(host.folder / "log")}
    return processes.start([*entry(host, holder), *argv], host.folder / "log/dockerd.log", environ)


def wait_docker(host: HostPlan, dockerd: ProcessId) -> None:
    """Wait until the host's dockerd answers; an error at once where it ends instead."""
    said = f"dockerd of {host.name} does not answer (see {host.folder}/log/dockerd.log)"
    processes.wait_until(lambda: _pings(host.docker_socket) or not procid.runs(dockerd), START_DEADLINE_S, said)
    if not procid.runs(dockerd):
        raise RuntimeError(f"dockerd of {host.name} ended (see {host.folder}/log/dockerd.log)")


def _pings(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(2.0)
        try:
            link.connect(str(path))
            link.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"200" in link.recv(64)
        except OSError:
            return False


def container_pids(host: HostPlan) -> tuple[int, ...]:
    """First processes of this dockerd's containers, from its run folder: one without network is in no name space of ours."""
    found = []
    for file in (host.folder / "docker/exec").glob("containerd/daemon/io.containerd.runtime.v2.task/moby/*/init.pid"):
        pid = int(file.read_text() or 0)
        try:
            if file.parent.name in (Path("/proc") / str(pid) / "cgroup").read_text():
                found.append(pid)
        except OSError:
            continue
    return tuple(found)
