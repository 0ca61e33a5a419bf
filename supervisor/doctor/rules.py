"""From every node's facts and what a launch wants to findings: pure, one function a topic. Links have rules of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from build.bundle import Needs
from build.facts import Container, Place, cma_finding
from build.units import gib
from supervisor.doctor import parity
from supervisor.doctor.facts import NodeFacts
from supervisor.doctor.findings import Action, Finding, error, note, warning
from supervisor.runners.labels import FOLDER, OWNER, PROJECT

GUARD_LABEL = "twinfold.guard"
ENGINE = re.compile(r"tensorfold|tf-dsv41")


@dataclass(frozen=True, slots=True)
class NodeWish:
    """What a launch wants of one node. ``missing``: bytes still to come by the path that they go to; ``need_bytes`` of memory.

    ``engram`` is where that node reads its tables, "" where it needs none. ``lease_ports``: at these UDP ports its guards listen.
    """

    need_bytes: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    engram: str = ""
    lease_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch wants of all nodes. ``nodes`` by name; ``serving``: the gang of this state folder runs now."""

    needs: Needs = Needs()
    docker: bool = False
    clock_cap_mhz: float = 2200.0
    gate_wait_s: float = 0.0
    engram_on_network: bool = False
    api_open: str = ""  # the address on which the API would listen without a key
    serving: bool = False
    container_name: str = ""
    owner: str = ""  # this state folder's id; "" where it has none yet
    nodes: Mapping[str, NodeWish] = field(default_factory=dict)

    def of(self, node: str) -> NodeWish:
        """What it wants of a node."""
        return self.nodes.get(node, NodeWish())


def judge(nodes: Sequence[NodeFacts], wanted: Wanted) -> tuple[Finding, ...]:
    """Every finding but those of links, the head's first."""
    reached = [node for node in nodes if node.trouble is None]
    found = [_trouble(node) for node in nodes if node.trouble]
    for node in reached:
        for rule in (
            _docker,
            _gpu_present,
            _memory,
            _cma,
            _leftovers,
            _gpu_users,
            _other_gang,
            _disk,
            _engram,
            _memlock,
            _lease_ports,
        ):
            found += rule(node, wanted)
    found += [*parity.findings(reached, wanted.clock_cap_mhz), *_api(wanted)]
    return tuple(found)


def _trouble(node: NodeFacts) -> Finding:
    assert node.trouble is not None
    reasons = {
        "KeyRefused": ("ssh_refused", "let your key in", "ssh-copy-id {target}"),
        "HostKeyChanged": (
            "host_key_changed",
            "if it was reinstalled, forget the old key and log in once",
            "ssh-keygen -R {target}",
        ),
        "HostKeyUnknown": ("host_key_unknown", "log in once and compare the fingerprint", "ssh {target}"),
        "NameUnknown": ("worker_unreachable", "correct WORKER, or give it an alias in ~/.ssh/config", "ssh {target} true"),
        "DeadlinePassed": ("worker_unreachable", "look at its console: it hangs", "ssh {target} true"),
    }
    other = ("worker_unreachable", "switch it on, look at the cable, try by hand", "ssh {target} true")
    reason, advice, command = reasons.get(node.trouble.kind, other)
    return error(
        reason, node.name, node.trouble.message, "its ranks cannot run", advice, command.format(target=node.trouble.target)
    )


def _docker(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    if not wanted.docker:
        return
    if node.docker is None:
        said, advice, command = node.docker_said or "no answer", "start it", "sudo systemctl start docker"
        if "permission denied" in said.lower():
            advice, command = "let the user into Docker's group, then log in anew", f"sudo usermod -aG docker {node.system.user}"
        elif "failed to run command" in said or "not found" in said:
            advice, command = "install it", "sudo apt-get install docker.io"
        elif "does not answer" in said:
            advice, command = "start it anew", "sudo systemctl restart docker"
        yield error(
            "docker_unreachable",
            node.name,
            f"{node.label}: Docker cannot be used: {said}",
            "ranks run in containers",
            advice,
            command,
        )
    elif wanted.needs.gpu and not node.docker.nvidia:
        yield error(
            "no_nvidia_runtime",
            node.name,
            f"{node.label}: Docker {node.docker.version} has no NVIDIA runtime ({', '.join(node.docker.runtimes) or 'none'})",
            "containers cannot be given the GPU",
            "install nvidia-container-toolkit and register it",
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        )


def _gpu_present(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    if wanted.needs.gpu and not node.gpus:
        said = "nvidia-smi shows no GPU" if node.has_smi else "nvidia-smi does not run"
        yield error(
            "no_gpu", node.name, f"{node.label}: {said}", "the target needs one on every node", "mend the driver", "nvidia-smi"
        )


def _memory(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    need, memory = wanted.of(node.name).need_bytes, node.memory
    if memory is None or not need or wanted.serving:
        return
    if memory.available_bytes < need:
        short = error(
            "memory_under_gate",
            node.name,
            f"{node.label}: {gib(memory.available_bytes)} of memory are available, a launch needs {gib(need)}",
            f"it waits up to {wanted.gate_wait_s:g} s for the rest, then it is refused",
            "stop other programs, or lower context or min_avail_gib",
            "ps -eo rss,pid,args --sort=-rss | head",
        )
        yield replace(short, action=Action.WAIT)
    elif wanted.needs.gpu and memory.free_bytes < need:
        yield note(
            "memory_in_page_cache",
            node.name,
            f"{node.label}: {gib(memory.free_bytes)} are free, {gib(memory.page_cache_bytes)} hold the page cache",
            f"CUDA takes free memory only; a launch needs {gib(need)}, and drops our own pages first",
            "drop the page cache if a launch is refused for it",
            "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches",
        )


def _cma(node: NodeFacts, _: Wanted) -> Iterator[Finding]:
    found = cma_finding(node.memory, node.system.cmdline) if node.memory else None
    if found:
        yield warning(
            found.reason,
            node.name,
            f"{node.label}: {found.message}",
            "a load may not fit, and RDMA registration may fail",
            "add it to GRUB_CMDLINE_LINUX and boot",
            "sudo update-grub && sudo reboot",
        )


def _leftovers(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    ours = [one for one in node.containers if PROJECT in one.labels and not _of_another(one, wanted)]
    if ours and not wanted.serving:
        yield note(
            "leftovers",
            node.name,
            f"{node.label}: an earlier supervisor left {', '.join(f'{one.name} ({one.state})' for one in ours)}",
            "a run adopts them where they are a whole gang of the same spec, else it saves their logs and removes them",
            "nothing to do",
            "supervisor stop",
            action=Action.TAKE_OVER,
        )


def _gpu_users(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    ours = {owner.pid for owner in node.owners if owner.rank}
    foreign = [app for app in node.apps if app.pid not in ours]
    if not foreign:
        return
    named = ", ".join(f"pid {app.pid} ({app.name})" for app in foreign)
    level = error if wanted.needs.gpu else warning
    yield level(
        "gpu_in_use",
        node.name,
        f"{node.label}: the GPU is used by {named}",
        "its memory is the gang's memory too",
        "stop it",
        f"sudo kill {foreign[0].pid}",
    )


def _other_gang(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    for one in node.containers:
        if one.running and PROJECT in one.labels and _of_another(one, wanted):
            yield _gang_beside(node, one, wanted)
        elif one.running and PROJECT not in one.labels and _is_engine(one, wanted.container_name):
            yield error(
                "other_gang",
                node.name,
                f"{node.label}: the container {one.name} runs another gang's rank ({one.image})",
                "two gangs do not fit one node",
                "stop it where it was started",
                f"docker stop {one.name}",
            )


def _of_another(one: Container, wanted: Wanted) -> bool:
    """Whether another state folder's gang made it. One that an earlier version made does not say."""
    return one.labels.get(OWNER, wanted.owner) != wanted.owner


def _gang_beside(node: NodeFacts, one: Container, wanted: Wanted) -> Finding:
    whose = one.labels.get(FOLDER, "an unknown folder")
    found = f"{node.label}: the container {one.name} runs a rank of another gang, of {whose}"
    if wanted.needs.gpu:
        return error("other_gang", node.name, found, "two gangs do not fit one node", "stop it there", "supervisor stop")
    return note("gang_beside", node.name, found, "its ports and its memory are not there for this one", "nothing to do")


def _is_engine(one: Container, name: str) -> bool:
    return bool(ENGINE.search(f"{one.command} {one.image}")) or (bool(name) and one.name == name)


def _disk(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    """What is missing, per file system: two paths on one count together, and two file systems apart."""
    sums: dict[tuple[str, str], tuple[Place, int]] = {}
    for path, missing in wanted.of(node.name).missing.items():
        place = next((one for one in node.places if one.path == path), None)
        if place is not None:
            key = (place.file_system.device, place.file_system.mount)
            sums[key] = (place, sums.get(key, (place, 0))[1] + missing)
    for place, missing in sums.values():
        if missing > place.file_system.available_bytes:
            yield error(
                "disk_too_small",
                node.name,
                f"{node.label}: {gib(place.file_system.available_bytes)} are free at {place.path} (file system"
                f" {place.file_system.mount}), and {gib(missing)} are missing there",
                "what a launch needs cannot be brought there",
                "free some, or put the store on another disk",
                f"df -h {place.file_system.mount}",
            )


def _engram(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    path = wanted.of(node.name).engram
    place = next((one for one in node.places if one.path == path), None) if path else None
    if place is None or not place.network:
        return
    level, advice = (error, "copy it to a local disk, or set engram_on_network = true")
    if wanted.engram_on_network:
        level, advice = warning, "copy it to a local disk for full speed"
    yield level(
        "engram_on_network",
        node.name,
        f"{node.label}: the Engram tables at {path} are on {place.kind} ({place.file_system.device})",
        "every token waits for random 4 KiB reads over the network",
        advice,
        f"findmnt -T {path}",
    )


def _memlock(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    if wanted.needs.memlock and not wanted.docker and node.system.memlock not in {"unlimited", ""}:
        yield warning(
            "memlock_limited",
            node.name,
            f"{node.label}: ulimit -l is {node.system.memlock} KiB",
            "RDMA cannot lock the memory that it registers",
            "raise it in /etc/security/limits.conf, or run ranks in containers",
            "ulimit -l unlimited",
        )


def _lease_ports(node: NodeFacts, wanted: Wanted) -> Iterator[Finding]:
    """Guards of our own, which a run takes over or sends away, have the ports rightly."""
    guarded = any(one.running and GUARD_LABEL in one.labels for one in node.containers)
    taken = sorted(node.udp_ports.intersection(wanted.of(node.name).lease_ports))
    if taken and not guarded and not wanted.serving:
        yield error(
            "lease_port_taken",
            node.name,
            f"{node.label}: UDP port {', '.join(map(str, taken))} is taken",
            "a guard there cannot hear the head's, and no rank runs unguarded",
            "set lease_port to another",
            f"ss -ulpn sport = :{taken[0]}",
        )


def _api(wanted: Wanted) -> Iterable[Finding]:
    if wanted.api_open:
        yield warning(
            "api_without_key",
            "head",
            f"the API listens on {wanted.api_open} without a key",
            "everyone who reaches this address can use it",
            "set api_key_file, or host = 127.0.0.1",
        )
