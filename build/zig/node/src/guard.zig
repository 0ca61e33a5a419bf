//! `guard`: sets everything up, takes its protections, and hands over to the loop.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const out = @import("out.zig");
const release = @import("release.zig");
const options_room = @import("guard/options.zig");
const decide = @import("guard/decide.zig");
const lease = @import("guard/lease.zig");
const paths = @import("guard/paths.zig");
const proc = @import("guard/proc.zig");
const record = @import("guard/record.zig");
const replay = @import("guard/replay.zig");
const Arguments = @import("arguments.zig").Arguments;
const Guard = @import("guard/loop.zig").Guard;
const Options = options_room.Options;
const Protection = @import("guard/protect.zig").Protection;
const Rank = @import("guard/rank.zig").Rank;
const Secret = @import("guard/secret.zig").Secret;
const Stream = @import("guard/stream.zig").Stream;

pub const help = options_room.help;

const no_such_rank = 3;
/// A sample judged this late says nothing any more.
const stale_ns = 500 * std.time.ns_per_ms;

/// Static, so that all the guard will ever need is there, and locked, from the start.
var guard: Guard = undefined;
var secret: Secret = .{};

pub fn run(arguments: *Arguments, arena: std.mem.Allocator) !u8 {
    const options = try options_room.parse(arguments);
    if (options.replay) return replay.run(floorOf(options), arena);
    const rank = (Rank.register(options.pid, options.start_ticks) catch return failed("pid", "", sys.message(sys.last))) orelse {
        out.complain("guard: pid {d} is gone, or is not the process that started at tick {d}", .{
            options.pid, options.start_ticks,
        });
        return no_such_rank;
    };
    if (!rank.mayBeSignalled()) return failed("this user may not signal the rank", "", sys.message(sys.last));
    if (!readSecret(options)) return 1;
    const launch: lease.Launch = .init(options.launch, secret.bytes());
    guard = .{
        .options = options,
        .version = release.version,
        .protocol = release.protocol,
        .floor = floorOf(options),
        .tree = proc.Tree.init(options.proc) catch return failed("--proc", options.proc, "name too long"),
        .rank = rank,
        .watch = .{ .stop_timeout_ms = options.stop_timeout_s * 1000 },
        .stream = Stream.open(options.socket.?) catch return failed("--socket", options.socket.?, sys.message(sys.last)),
        .ears = if (options.listen_count > 0) .{ .receiver = receiver(launch, options) } else null,
        .mouths = if (options.send_count > 0) .{ .launch = launch } else null,
        .protection = undefined,
    };
    if (!openRest(options)) {
        guard.stream.close();
        return 1;
    }
    guard.protection = .take();
    sayReady();
    return guard.run();
}

fn floorOf(options: Options) decide.Floor {
    return .{
        .hard_bytes = options.hard_bytes,
        .soft_bytes = options.soft_bytes,
        .horizon_ns = options.horizon_ms * std.time.ns_per_ms,
        .stale_ns = stale_ns,
    };
}

fn receiver(launch: lease.Launch, options: Options) lease.Receiver {
    return .{ .launch = launch, .timeout_ms = options.lease_timeout_ms, .armed_ms = sys.monotonicMs() + options.lease_grace_ms };
}

fn readSecret(options: Options) bool {
    const read = if (options.secret_file) |path|
        secret.readFile(path)
    else if (options.secret_fd) |fd|
        secret.readFd(fd)
    else
        return true;
    read catch |err| {
        _ = failed("secret", options.secret_file orelse "", switch (err) {
            error.NotPrivate => "readable by others: chmod 600 it",
            error.WrongLength => "16 to 128 bytes are needed",
            error.SystemCall => sys.message(sys.last),
        });
        return false;
    };
    return true;
}

/// Sockets, log and timer; false after the line that says what failed.
fn openRest(options: Options) bool {
    if (options.socket_owner) |owner| guard.stream.giveTo(owner.uid, owner.gid) catch return !complained("--socket-owner", "");
    if (guard.ears) |*ears| ears.open(options.listens[0..options.listen_count]) catch return !complained("--lease-listen", "");
    if (guard.mouths) |*mouths| mouths.open(options.sends[0..options.send_count]) catch return !complained("--lease-send", "");
    if (options.log) |path| guard.log.fd = record.Log.open(path) catch return !complained("--log", path);
    guard.arm() catch return !complained("timer", "");
    return true;
}

fn complained(what: []const u8, which: []const u8) bool {
    _ = failed(what, which, sys.message(sys.last));
    return true;
}

fn failed(what: []const u8, which: []const u8, reason: []const u8) u8 {
    out.complain("guard: {s}{s}{s}: {s}", .{ what, if (which.len > 0) " " else "", which, reason });
    return 1;
}

/// The hello line on standard output, for whoever started us: written at once or not at all.
fn sayReady() void {
    var polled = [_]linux.pollfd{.{ .fd = 1, .events = linux.POLL.OUT, .revents = 0 }};
    _ = sys.check(linux.poll(&polled, 1, 0)) catch return;
    if (polled[0].revents & linux.POLL.OUT == 0) return;
    var buffer: [4096]u8 = undefined;
    var line: std.Io.Writer = .fixed(&buffer);
    guard.writeHello(&line) catch return;
    out.say(line.buffered());
}
