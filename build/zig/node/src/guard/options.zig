//! The guard's arguments, checked.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const net = @import("../net.zig");
const Arguments = @import("../arguments.zig").Arguments;

pub const help =
    \\usage: twinfold-node guard --pid N --start-ticks T --hard-bytes B --soft-bytes B --socket PATH [option...]
    \\       twinfold-node guard --replay --hard-bytes B --soft-bytes B [--horizon-ms N]
    \\
    \\Watches one rank of a launch from its registration to its end: kills it (SIGKILL through a pidfd) when available memory is
    \\below the hard floor, or would be within the horizon at the present fall; stops it when the peer's lease or the supervisor
    \\is silent. Streams its samples to whoever is connected. Allocates nothing once it runs.
    \\
    \\  --pid N --start-ticks T   the rank: its pid and field 22 of /proc/N/stat; another process of that pid is refused
    \\  --proc DIR                proc tree that memory is read from (default /proc): meminfo and pressure/memory
    \\  --hard-bytes B            kill below this much MemAvailable
    \\  --soft-bytes B            report `soft` below this much; the supervisor decides
    \\  --horizon-ms N            kill when the hard floor is less than this away at the present fall (default 500; 0: never)
    \\  --period-ms N             between samples (default 100, 10 to 1000)
    \\  --socket PATH             unix socket to listen on, mode 0600; --socket-owner UID:GID gives it to somebody
    \\  --launch ID               the launch's id, in every hello and in every lease
    \\  --log FILE                append why the rank was killed or stopped, with the last two seconds of samples
    \\  --linger-s N              go on sampling this long after the rank's end, until a client says bye (default 120)
    \\  --replay                  read lines "T_MS AVAILABLE_BYTES" from standard input, print what each would have called for
    \\
    \\Leases (UDP, HMAC-SHA256):
    \\  --secret-file FILE, --lease-secret-fd N   the launch's secret, 16 to 128 bytes; never an argument. FILE must be private
    \\  --lease-listen ADDR:PORT  hear the peer's guard here (repeatable: one a path)
    \\  --lease-send ADDR:PORT    tell the peer's guard there, every 500 ms (repeatable)
    \\  --lease-from ADDR         source address of the --lease-send before it
    \\  --lease-timeout-ms N      silence on every path for this long stops the rank: SIGTERM, and SIGKILL half a second later
    \\                            (default 10000)
    \\  --lease-grace-ms N        time for the peer to come up: before it, only a first packet starts the count (default 60000)
    \\  --supervised              the supervisor must be heard through the socket
    \\  --orphan-s N              its silence after which the rank is stopped in order (default 600)
    \\  --stop-timeout-s N        from that SIGTERM to SIGKILL (default 30)
    \\
    \\Stream: JSON lines. First {"hello":{...}}, then {"sample":N,...} and {"event":"...",...}. A sample is told every half second
    \\while memory is calm: above the soft floor, less than 1/64 of what is left above the hard floor away from the last one told,
    \\and not falling to the hard floor within a minute; else each is. A client that reads too slowly misses lines and is told
    \\how many by {"missed":N}. t_ms is CLOCK_MONOTONIC. Events: soft, soft_cleared, kill, term, kill_failed, dead, recovered,
    \\unreadable, readable, resumed (after the guard itself was stopped), peer_heard, log_failed.
    \\A client may send {"alive":N}, which renews the supervisor's lease, and {"bye":true}, which ends a guard whose rank has
    \\ended.
    \\
    \\Exit: 0 the rank ended by itself; 1 could not start; 2 wrong usage; 3 no such rank (gone, or another process has its pid);
    \\10 killed at the hard floor; 11 killed by the slope; 13 stopped, peer silent; 14 stopped, supervisor silent;
    \\15 asked to leave by SIGTERM or SIGINT, rank left alone.
    \\
;

pub const most_paths = 8;

pub const SendPath = struct { to: net.Address, from: ?net.Address = null };

pub const Options = struct {
    replay: bool = false,
    pid: linux.pid_t = 0,
    start_ticks: u64 = 0,
    proc: [:0]const u8 = "/proc",
    hard_bytes: u64 = 0,
    soft_bytes: u64 = 0,
    horizon_ms: u64 = 500,
    period_ms: u64 = 100,
    socket: ?[:0]const u8 = null,
    socket_owner: ?Owner = null,
    launch: []const u8 = "",
    log: ?[:0]const u8 = null,
    linger_s: u64 = 120,
    secret_file: ?[:0]const u8 = null,
    secret_fd: ?sys.Fd = null,
    listens: [most_paths]net.Address = undefined,
    listen_count: usize = 0,
    sends: [most_paths]SendPath = undefined,
    send_count: usize = 0,
    lease_timeout_ms: u64 = 10_000,
    lease_grace_ms: u64 = 60_000,
    supervised: bool = false,
    orphan_s: u64 = 600,
    stop_timeout_s: u64 = 30,

    pub const Owner = struct { uid: u32, gid: u32 };
};

pub fn parse(arguments: *Arguments) !Options {
    var options: Options = .{};
    while (arguments.next()) |option| {
        if (!try memoryOption(arguments, &options, option) and
            !try streamOption(arguments, &options, option) and
            !try leaseOption(arguments, &options, option)) return arguments.wrong("unknown option {s}", .{option});
    }
    try check(arguments, options);
    return options;
}

fn memoryOption(arguments: *Arguments, options: *Options, option: []const u8) !bool {
    if (is(option, "--pid")) {
        options.pid = try arguments.number(linux.pid_t, option, 1, std.math.maxInt(linux.pid_t));
    } else if (is(option, "--start-ticks")) {
        options.start_ticks = try arguments.number(u64, option, 0, std.math.maxInt(u64));
    } else if (is(option, "--proc")) {
        options.proc = try arguments.value(option);
    } else if (is(option, "--hard-bytes")) {
        options.hard_bytes = try arguments.number(u64, option, 1, std.math.maxInt(u63));
    } else if (is(option, "--soft-bytes")) {
        options.soft_bytes = try arguments.number(u64, option, 1, std.math.maxInt(u63));
    } else if (is(option, "--horizon-ms")) {
        options.horizon_ms = try arguments.number(u64, option, 0, 60_000);
    } else if (is(option, "--period-ms")) {
        options.period_ms = try arguments.number(u64, option, 10, 1000);
    } else if (is(option, "--replay")) {
        options.replay = true;
    } else return false;
    return true;
}

fn streamOption(arguments: *Arguments, options: *Options, option: []const u8) !bool {
    if (is(option, "--socket")) {
        options.socket = try arguments.value(option);
    } else if (is(option, "--socket-owner")) {
        options.socket_owner = try owner(arguments, option);
    } else if (is(option, "--launch")) {
        options.launch = try arguments.value(option);
    } else if (is(option, "--log")) {
        options.log = try arguments.value(option);
    } else if (is(option, "--linger-s")) {
        options.linger_s = try arguments.number(u64, option, 0, 86_400);
    } else return false;
    return true;
}

fn leaseOption(arguments: *Arguments, options: *Options, option: []const u8) !bool {
    if (is(option, "--secret-file")) {
        options.secret_file = try arguments.value(option);
    } else if (is(option, "--lease-secret-fd")) {
        options.secret_fd = try arguments.number(sys.Fd, option, 0, std.math.maxInt(sys.Fd));
    } else if (is(option, "--lease-listen")) {
        if (options.listen_count == most_paths) return arguments.wrong("more than {d} paths", .{most_paths});
        options.listens[options.listen_count] = try addressWithPort(arguments, option);
        options.listen_count += 1;
    } else if (is(option, "--lease-send")) {
        if (options.send_count == most_paths) return arguments.wrong("more than {d} paths", .{most_paths});
        options.sends[options.send_count] = .{ .to = try addressWithPort(arguments, option) };
        options.send_count += 1;
    } else if (is(option, "--lease-from")) {
        try leaseFrom(arguments, options, option);
    } else if (is(option, "--lease-timeout-ms")) {
        options.lease_timeout_ms = try arguments.number(u64, option, 1000, 3_600_000);
    } else if (is(option, "--lease-grace-ms")) {
        options.lease_grace_ms = try arguments.number(u64, option, 0, 86_400_000);
    } else return supervisorOption(arguments, options, option);
    return true;
}

fn supervisorOption(arguments: *Arguments, options: *Options, option: []const u8) !bool {
    if (is(option, "--supervised")) {
        options.supervised = true;
    } else if (is(option, "--orphan-s")) {
        options.orphan_s = try arguments.number(u64, option, 1, 86_400 * 365);
    } else if (is(option, "--stop-timeout-s")) {
        options.stop_timeout_s = try arguments.number(u64, option, 0, 86_400);
    } else return false;
    return true;
}

fn leaseFrom(arguments: *Arguments, options: *Options, option: []const u8) !void {
    const text = try arguments.value(option);
    const from = net.Address.parse(text, 0) orelse return arguments.wrong("{s} is no IPv4 or IPv6 address", .{text});
    if (options.send_count == 0) return arguments.wrong("--lease-from comes after its --lease-send", .{});
    const path = &options.sends[options.send_count - 1];
    if (from.isV6() != path.to.isV6()) return arguments.wrong("--lease-from {s} is of the other address family", .{text});
    path.from = from;
}

fn addressWithPort(arguments: *Arguments, option: []const u8) !net.Address {
    const text = try arguments.value(option);
    return net.Address.parseWithPort(text) orelse
        arguments.wrong("{s} {s}: ADDR:PORT is needed, ADDR a literal", .{ option, text });
}

fn owner(arguments: *Arguments, option: []const u8) !Options.Owner {
    const text = try arguments.value(option);
    const wrong = "--socket-owner {s}: UID:GID is needed";
    const colon = std.mem.findScalar(u8, text, ':') orelse return arguments.wrong(wrong, .{text});
    return .{
        .uid = std.fmt.parseInt(u32, text[0..colon], 10) catch return arguments.wrong(wrong, .{text}),
        .gid = std.fmt.parseInt(u32, text[colon + 1 ..], 10) catch return arguments.wrong(wrong, .{text}),
    };
}

fn check(arguments: *const Arguments, options: Options) !void {
    if (options.hard_bytes == 0 or options.soft_bytes == 0) {
        return arguments.wrong("--hard-bytes and --soft-bytes are needed", .{});
    }
    if (options.soft_bytes < options.hard_bytes) return arguments.wrong("--soft-bytes is below --hard-bytes", .{});
    if (options.replay) return;
    if (options.pid == 0 or options.start_ticks == 0) return arguments.wrong("--pid and --start-ticks are needed", .{});
    const path = options.socket orelse return arguments.wrong("--socket is needed", .{});
    const path_room = @typeInfo(@FieldType(linux.sockaddr.un, "path")).array.len;
    if (path.len >= path_room) return arguments.wrong("--socket: a path of at most 107 bytes", .{});
    if (options.launch.len > 128) return arguments.wrong("--launch: at most 128 bytes", .{});
    const leased = options.listen_count + options.send_count > 0;
    const secrets = @as(u8, @intFromBool(options.secret_file != null)) + @intFromBool(options.secret_fd != null);
    if (leased and secrets != 1) return arguments.wrong("a lease needs --secret-file or --lease-secret-fd", .{});
    if (leased and options.launch.len == 0) return arguments.wrong("a lease needs --launch", .{});
}

fn is(option: []const u8, name: []const u8) bool {
    return std.mem.eql(u8, option, name);
}
