"""Every metric once: name, type, unit, labels, help.

Names follow Prometheus' conventions: base units, the unit as a suffix, ``_total`` on counters, ``_info`` on infos, no colons
(those are for recording rules) and no labels that a scrape adds by itself (``job``, ``instance``). A metric stands here only
while something feeds it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

PREFIX = "twinfold_"


class Kind(enum.Enum):
    """Prometheus' metric types, as far as they are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. ``name`` is what a query says, suffix and all; ``unit`` is "" or the base unit that the name carries."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help: str

    @property
    def family(self) -> str:
        """The name without the suffix that its type adds."""
        suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix)


def _counter(name: str, help: str, *labels: str, unit: str = "") -> Metric:
    return Metric(PREFIX + name + "_total", Kind.COUNTER, unit, labels, help)


def _gauge(name: str, help: str, *labels: str, unit: str = "") -> Metric:
    return Metric(PREFIX + name, Kind.GAUGE, unit, labels, help)


def _seconds(name: str, help: str, *labels: str) -> Metric:
    return Metric(PREFIX + name, Kind.HISTOGRAM, "seconds", labels, help)


# The gang
GANG_STATE = _gauge("gang_state", "1 for the phase that the gang is in, 0 for every other.", "state")
RANK_UP = _gauge("rank_up", "1 while the rank's process or container runs.", "rank", "node")
LAUNCHES = _counter("launches", "Launches begun since the supervisor started.")
RESTARTS = _counter("restarts", "Gangs replaced since the supervisor started, by reason.", "reason")
LAUNCH_PHASE = _gauge(
    "launch_phase_duration_seconds",
    "How long each phase of the last launch took, until now for the one under way.",
    "phase",
    unit="seconds",
)
STARTED = _gauge("start_timestamp_seconds", "Unix time at which the supervisor started.", unit="seconds")
READY = _gauge("ready", "1 when a request would be answered now: what /readyz says.")
LAST_PROGRESS = _gauge(
    "last_progress_timestamp_seconds", "Unix time at which the engine was last seen to make progress.", unit="seconds"
)
BUNDLE = Metric(
    PREFIX + "bundle_info",
    Kind.INFO,
    "",
    ("target", "generation", "bundle", "image", "variant", "model_revision", "world_size"),
    "What the gang serves: its bundle in the store, and what that is made of.",
)
NEWER_GENERATION = _gauge("newer_generation_waiting", "1 when a newer generation than the served one waits for a restart.")
SETTINGS_REFUSED = _gauge(
    "settings_refused", "1 while config.toml, the lock or the current generation cannot be taken as they are."
)
STATE_FOLDER_LOST = _gauge("state_folder_lost", "1 while the state folder is gone, or another lies in its place.")
SETTINGS_PARITY = _gauge(
    "settings_parity", "1 while every rank logged the settings that it was given, 0 after a launch where one did not."
)
SETTINGS_WAITING = _gauge("settings_waiting", "Changes of the settings that wait for a restart of the gang.")

# Throughput, from the engine's live totals
GENERATED_TOKENS = _counter("generated_tokens", "Tokens generated, counted while their requests still run.", "model")
PROMPT_TOKENS = _counter("prompt_tokens", "Prompt tokens taken in, cached ones among them.", "model")
CACHED_PROMPT_TOKENS = _counter("cached_prompt_tokens", "Prompt tokens that the engine still held from before.", "model")
DRAFTED_TOKENS = _counter("drafted_tokens", "Tokens drafted ahead.", "model")
ACCEPTED_TOKENS = _counter("accepted_tokens", "Drafted tokens that verification accepted.", "model")
DECODE_ROUNDS = _counter("decode_rounds", "Decode rounds, each of which involves every rank.", "model")
DECODE_RATE = _gauge("decode_tokens_per_second", "Tokens generated a second over all streams, now.", "model")
PREFILL_RATE = _gauge("prefill_tokens_per_second", "Prompt tokens computed a second, now.", "model")
REQUESTS_RUNNING = _gauge("requests_running", "Requests that hold a stream.", "model")
REQUESTS_WAITING = _gauge("requests_waiting", "Requests that wait for a stream.", "model")
TIME_TO_FIRST_TOKEN = _seconds("time_to_first_token_seconds", "From a request's arrival to its first token.", "model")
TIME_PER_OUTPUT_TOKEN = _seconds("time_per_output_token_seconds", "Mean time between a request's tokens.", "model")
REQUEST_DURATION = _seconds("request_duration_seconds", "From a request's arrival to its end.", "model")
REQUEST_PREFILL = _seconds("request_prefill_seconds", "A request's time in prefill.", "model")
REQUEST_DECODE = _seconds("request_decode_seconds", "A request's time in decoding.", "model")
KV_CACHE = _gauge("kv_cache_usage_ratio", "Share of the fullest pool of kept prompt state in use.", "model", unit="ratio")
CONTEXT = _gauge("context_tokens", "The context window that the gang serves, shared by all streams.", "model")
ENGINE_UP = _gauge("engine_up", "1 when the engine answered the last time it was read.")
ENGINE_AGE = _gauge("engine_sample_age_seconds", "Age of the last answer of the engine.", unit="seconds")

# Headroom, from each node's kernel: on unified memory nothing else tells it
MEMORY_TOTAL = _gauge("memory_total_bytes", "MemTotal.", "node", unit="bytes")
MEMORY_AVAILABLE = _gauge(
    "memory_available_bytes", "MemAvailable: what can be had without swapping, page cache among it.", "node", unit="bytes"
)
MEMORY_FREE = _gauge(
    "memory_free_bytes", "MemFree: what a device allocation can have, page cache not among it.", "node", unit="bytes"
)
PAGE_CACHE = _gauge("memory_page_cache_bytes", "Cached: file pages held in memory.", "node", unit="bytes")
SWAP_TOTAL = _gauge("swap_total_bytes", "SwapTotal.", "node", unit="bytes")
SWAP_FREE = _gauge("swap_free_bytes", "SwapFree.", "node", unit="bytes")
MEMORY_FLOOR = _gauge(
    "memory_floor_bytes", "What must stay available, by the stage that acts below it.", "node", "stage", unit="bytes"
)
HEADROOM = _gauge(
    "memory_headroom_bytes", "MemAvailable less the soft floor; below zero the floor is breached.", "node", unit="bytes"
)
HEADROOM_SLOPE = _gauge(
    "memory_headroom_slope_bytes_per_second", "How fast headroom changes; below zero it shrinks.", "node", unit="bytes_per_second"
)
MEMORY_LOW_WATER = _gauge("memory_available_low_bytes", "Lowest MemAvailable since the supervisor started.", "node", unit="bytes")
MEMORY_PLANNED = _gauge(
    "memory_planned_bytes", "What the plan of the launch says that the node's ranks need.", "node", unit="bytes"
)
CONTEXT_LEFT = _gauge(
    "context_left_tokens", "Tokens of context that the headroom is worth by the plan's bytes a token; 0 below the floor.", "node"
)
EVICTIONS = _counter("evictions", "Gangs ended because a node ran short of memory, by the stage that acted.", "node", "stage")
LADDER_RUNG = _gauge("context_ladder_rung", "Steps down the ladder of contexts that memory has forced; 0 is the full context.")
MEMORY_AGE = _gauge("memory_sample_age_seconds", "Age of the node's last memory sample.", "node", unit="seconds")
PRESSURE = _gauge(
    "memory_pressure_ratio",
    "Share of the last 10 s in which some or all tasks stalled on memory (PSI avg10).",
    "node",
    "kind",
    unit="ratio",
)
PRESSURE_STALLED = _counter(
    "memory_pressure_stalled_seconds",
    "Time in which some or all tasks stalled on memory (PSI total).",
    "node",
    "kind",
    unit="seconds",
)
STALLED = _counter(
    "pressure_stalled_seconds",
    "Time in which some or all tasks stalled on the processor or on disks (PSI total).",
    "node",
    "resource",
    "kind",
    unit="seconds",
)

# The guard of each node
GUARD_UP = _gauge("guard_up", "1 while the node's guard answers.", "node")
GUARD_AGE = _gauge("guard_sample_age_seconds", "Age of the last sample that the node's guard sent.", "node", unit="seconds")
LEASE_AGE = _gauge("guard_lease_age_seconds", "Time since the guard last heard who it depends on.", "node", unit="seconds")

# Hardware of each node: nvidia-smi, and the kernel's own files
HARDWARE_UP = _gauge("hardware_up", "1 when the node's hardware could be read the last time.", "node")
HARDWARE_AGE = _gauge("hardware_sample_age_seconds", "Age of the last reading of the node's hardware.", "node", unit="seconds")
GPU_CLOCK = _gauge("gpu_sm_clock_hertz", "Clock that the multiprocessors run at.", "node", "device", unit="hertz")
GPU_CLOCK_MAX = _gauge(
    "gpu_sm_clock_max_hertz", "Highest clock that the chip can run at, whatever cap is set.", "node", "device", unit="hertz"
)
GPU_POWER = _gauge("gpu_power_watts", "Power drawn.", "node", "device", unit="watts")
GPU_TEMPERATURE = _gauge("gpu_temperature_celsius", "Temperature of the chip.", "node", "device", unit="celsius")
GPU_BUSY = _gauge("gpu_utilization_ratio", "Share of time in which a kernel ran.", "node", "device", unit="ratio")
GPU_THROTTLED = _gauge("gpu_throttled", "1 while the reason holds the clock down.", "node", "device", "reason")
GPU_MEMORY_TOTAL = _gauge(
    "gpu_memory_total_bytes", "Memory of the GPU's own; absent where it shares the host's.", "node", "device", unit="bytes"
)
GPU_MEMORY_USED = _gauge(
    "gpu_memory_used_bytes", "Memory of the GPU's own in use; absent where it shares the host's.", "node", "device", unit="bytes"
)
LINK_UP = _gauge("link_up", "1 while the port has a carrier and is up.", "node", "device")
LINK_MTU = _gauge("link_mtu_bytes", "Largest packet that the port sends.", "node", "device", unit="bytes")
LINK_SPEED = _gauge("link_speed_bytes_per_second", "Rate that the port runs at.", "node", "device", unit="bytes_per_second")
LINK_GID_INDEX = _gauge(
    "link_gid_index", "Index of an RDMA port's first RoCE v2 GID with an IPv4 address; it may move at a reboot.", "node", "device"
)
LINK_RECEIVED = _counter("link_received_bytes", "Bytes received.", "node", "device", unit="bytes")
LINK_SENT = _counter("link_sent_bytes", "Bytes sent.", "node", "device", unit="bytes")
LINK_RETRANSMITS = _counter(
    "link_retransmits", "Packets that an RDMA port had to send again: time-outs and sequence errors.", "node", "device"
)
ENGRAM_READS = _counter("engram_disk_reads", "Reads that the disk with the Engram tables completed.", "node", "device")
ENGRAM_READ_BYTES = _counter(
    "engram_disk_read_bytes", "Bytes read from the disk with the Engram tables.", "node", "device", unit="bytes"
)
ENGRAM_ON_NETWORK = _gauge("engram_on_network", "1 when the Engram tables lie on a network file system.", "node")
DISK_SIZE = _gauge("disk_size_bytes", "Size of the file system that holds the store.", "node", unit="bytes")
DISK_FREE = _gauge("disk_free_bytes", "What the store's file system has left.", "node", unit="bytes")

# Builds
ARTEFACT_BUILD = _gauge(
    "artefact_build_duration_seconds", "How long each artefact of the served bundle took to make.", "artefact", unit="seconds"
)
ARTEFACT_SIZE = _gauge("artefact_size_bytes", "Size of each artefact of the served bundle.", "artefact", unit="bytes")
STORE_VERIFIED = _gauge(
    "store_verified_timestamp_seconds",
    "Unix time at which the whole store was last verified, or the served bundle was made where that is later.",
    unit="seconds",
)

# Probes
PROBE_SUCCESS = _gauge("probe_success", "1 when the last probe of this kind passed.", "probe")
PROBE_DURATION = _gauge("probe_duration_seconds", "How long the last probe of this kind took.", "probe", unit="seconds")
PROBE_RESULTS = _counter("probe_results", "Probes by how they ended.", "probe", "result")

# The exporter itself
SNAPSHOT_AGE = _gauge("snapshot_age_seconds", "Time since the supervisor last published what is shown here.", unit="seconds")

CATALOGUE: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
