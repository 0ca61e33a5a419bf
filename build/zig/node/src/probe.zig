//! `probe`: does a path carry packets of full size? UDP with "don't fragment", echoed by a listener at the other end.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const net = @import("net.zig");
const out = @import("out.zig");
const Arguments = @import("arguments.zig").Arguments;
const Allocator = std.mem.Allocator;

pub const help =
    \\usage: twinfold-node probe listen ADDR PORT [--device IFNAME] [--idle-ms N] [--max-ms N]
    \\       twinfold-node probe send ADDR PORT --size BYTES [--count N] [--timeout-ms T] [--from ADDR] [--device IFNAME]
    \\
    \\listen echoes probes back at their full size until none came for --idle-ms (10000) or --max-ms (60000) have passed. It
    \\prints {"listening":"ADDR:PORT"} first (PORT 0: the kernel's choice) and {"echoed":N,"unsent":N} at its end.
    \\
    \\send sends --count (5) probes one after the other and waits --timeout-ms (1000) for each echo. BYTES is the payload: for
    \\IPv4 the link's MTU less 28, for IPv6 less 48. Nothing is ever fragmented. It prints one line: size, sent, received, and
    \\what became of the rest: lost (no answer), too_big (EMSGSIZE: this end's link or a router on the way), refused (nobody
    \\listens), unreachable; rtt_min_us and rtt_median_us of those received.
    \\Exit: 0 every probe came back; 1 not all did, or the socket could not be set up; 2 wrong usage.
    \\
;

const magic = "TFPB";
/// Magic, sender's nonce and probe number; the rest of a probe is zeros.
const header_bytes = 16;
const largest_bytes = 65507;
const most_probes = 1000;

const Options = struct {
    address: net.Address,
    size: u32 = 0,
    count: u32 = 5,
    timeout_ms: u32 = 1000,
    idle_ms: u32 = 10_000,
    max_ms: u32 = 60_000,
    from: ?net.Address = null,
    device: ?[]const u8 = null,
};

pub fn run(arguments: *Arguments, _: Allocator) !u8 {
    const role = arguments.next() orelse return arguments.wrong("listen or send is needed", .{});
    const listens = std.mem.eql(u8, role, "listen");
    if (!listens and !std.mem.eql(u8, role, "send")) return arguments.wrong("unknown role {s}: listen or send", .{role});
    const options = try parse(arguments, listens);
    return if (listens) listen(options) else send(options);
}

fn parse(arguments: *Arguments, listens: bool) !Options {
    const host = arguments.next() orelse return arguments.wrong("an address is needed", .{});
    const port = try arguments.number(u16, "PORT", if (listens) 0 else 1, 65535);
    var options: Options = .{
        .address = net.Address.parse(host, port) orelse return arguments.wrong("{s} is no IPv4 or IPv6 address", .{host}),
    };
    while (arguments.next()) |option| try parseOption(arguments, &options, option, listens);
    if (!listens and options.size == 0) return arguments.wrong("--size is needed", .{});
    if (options.from) |from| {
        if (from.isV6() != options.address.isV6()) return arguments.wrong("--from is of the other address family", .{});
    }
    return options;
}

fn parseOption(arguments: *Arguments, options: *Options, option: []const u8, listens: bool) !void {
    if (std.mem.eql(u8, option, "--device")) {
        options.device = try arguments.value(option);
    } else if (listens and std.mem.eql(u8, option, "--idle-ms")) {
        options.idle_ms = try arguments.number(u32, option, 1, 3_600_000);
    } else if (listens and std.mem.eql(u8, option, "--max-ms")) {
        options.max_ms = try arguments.number(u32, option, 1, 3_600_000);
    } else if (!listens and std.mem.eql(u8, option, "--size")) {
        options.size = try arguments.number(u32, option, header_bytes, largest_bytes);
    } else if (!listens and std.mem.eql(u8, option, "--count")) {
        options.count = try arguments.number(u32, option, 1, most_probes);
    } else if (!listens and std.mem.eql(u8, option, "--timeout-ms")) {
        options.timeout_ms = try arguments.number(u32, option, 1, 60_000);
    } else if (!listens and std.mem.eql(u8, option, "--from")) {
        const text = try arguments.value(option);
        options.from = net.Address.parse(text, 0) orelse return arguments.wrong("{s} is no IPv4 or IPv6 address", .{text});
    } else return arguments.wrong("unknown option {s}", .{option});
}

fn openSocket(options: Options) sys.Failed!sys.Fd {
    const v6 = options.address.isV6();
    const fd = try net.udp(v6);
    try net.forbidFragments(fd, v6);
    if (options.device) |name| try net.bindToDevice(fd, name);
    return fd;
}

fn listen(options: Options) !u8 {
    const fd = try openSocket(options);
    try net.bind(fd, options.address);
    say("{{\"listening\":\"{f}\"}}\n", .{try net.boundTo(fd)});
    const buffer = try sys.mapBytes(largest_bytes);
    const end_ms = sys.monotonicMs() + options.max_ms;
    var echoed: u64 = 0;
    var unsent: u64 = 0;
    while (true) {
        const now_ms = sys.monotonicMs();
        if (now_ms >= end_ms or !net.readable(fd, @min(options.idle_ms, end_ms - now_ms))) break;
        const sent = echo(fd, buffer) orelse continue;
        if (sent) echoed += 1 else unsent += 1;
    }
    say("{{\"echoed\":{d},\"unsent\":{d}}}\n", .{ echoed, unsent });
    return 0;
}

/// Sends one probe back; null where what came was none. Errors that ICMP reported are read and gone.
fn echo(fd: sys.Fd, buffer: []u8) ?bool {
    var from: net.Address = .{ .raw = .{ .in6 = std.mem.zeroes(linux.sockaddr.in6) } };
    var size: linux.socklen_t = @sizeOf(linux.sockaddr.in6);
    const length = sys.check(linux.recvfrom(fd, buffer.ptr, buffer.len, 0, &from.raw.any, &size)) catch return null;
    if (length < header_bytes or !std.mem.startsWith(u8, buffer, magic)) return null;
    _ = sys.check(linux.sendto(fd, buffer.ptr, length, 0, &from.raw.any, size)) catch return false;
    return true;
}

const Outcome = union(enum) { received_ns: u64, lost, too_big, refused, unreachable_path };

fn send(options: Options) !u8 {
    const fd = try openSocket(options);
    if (options.from) |from| try net.bind(fd, from);
    try net.connect(fd, options.address);
    const packet = try sys.mapBytes(2 * largest_bytes);
    const nonce: u64 = sys.monotonicNs() ^ (@as(u64, @intCast(linux.getpid())) << 40);
    var tally: Tally = .{};
    for (0..options.count) |number| {
        fill(packet, nonce, @intCast(number));
        tally.count(probeOnce(fd, packet[0..options.size], packet[largest_bytes..], options.timeout_ms));
    }
    tally.print(options);
    return if (tally.received == options.count) 0 else 1;
}

fn fill(packet: []u8, nonce: u64, number: u32) void {
    @memcpy(packet[0..4], magic);
    std.mem.writeInt(u64, packet[4..12], nonce, .little);
    std.mem.writeInt(u32, packet[12..16], number, .little);
}

fn probeOnce(fd: sys.Fd, probe: []const u8, answer: []u8, timeout_ms: u32) Outcome {
    const sent_ns = sys.monotonicNs();
    _ = sys.check(linux.sendto(fd, probe.ptr, probe.len, 0, null, 0)) catch return classify(sys.last);
    const end_ns = sent_ns + @as(u64, timeout_ms) * std.time.ns_per_ms;
    while (true) {
        const now_ns = sys.monotonicNs();
        if (now_ns >= end_ns or !net.readable(fd, (end_ns - now_ns) / std.time.ns_per_ms + 1)) return .lost;
        const length = sys.check(linux.recvfrom(fd, answer.ptr, largest_bytes, 0, null, null)) catch return classify(sys.last);
        const same = length == probe.len and std.mem.eql(u8, answer[0..header_bytes], probe[0..header_bytes]);
        if (same) return .{ .received_ns = sys.monotonicNs() - sent_ns };
    }
}

fn classify(code: sys.Errno) Outcome {
    return switch (code) {
        .MSGSIZE => .too_big,
        .CONNREFUSED => .refused,
        .AGAIN => .lost,
        else => .unreachable_path,
    };
}

const Tally = struct {
    received: u32 = 0,
    lost: u32 = 0,
    too_big: u32 = 0,
    refused: u32 = 0,
    unreachable_path: u32 = 0,
    rtt_us: [most_probes]u32 = undefined,

    fn count(self: *Tally, outcome: Outcome) void {
        switch (outcome) {
            .received_ns => |ns| {
                self.rtt_us[self.received] = @intCast(@min(ns / std.time.ns_per_us, std.math.maxInt(u32)));
                self.received += 1;
            },
            .lost => self.lost += 1,
            .too_big => self.too_big += 1,
            .refused => self.refused += 1,
            .unreachable_path => self.unreachable_path += 1,
        }
    }

    fn print(self: *Tally, options: Options) void {
        const rtts = self.rtt_us[0..self.received];
        std.mem.sort(u32, rtts, {}, std.sort.asc(u32));
        const least: ?u32 = if (rtts.len > 0) rtts[0] else null;
        const median: ?u32 = if (rtts.len > 0) rtts[rtts.len / 2] else null;
        const shape = "{{\"size\":{d},\"sent\":{d},\"received\":{d},\"lost\":{d},\"too_big\":{d},\"refused\":{d}," ++
            "\"unreachable\":{d},\"rtt_min_us\":{?d},\"rtt_median_us\":{?d}}}\n";
        say(shape, .{
            options.size, options.count,         self.received, self.lost, self.too_big,
            self.refused, self.unreachable_path, least,         median,
        });
    }
};

fn say(comptime format: []const u8, values: anytype) void {
    var buffer: [512]u8 = undefined;
    var line: std.Io.Writer = .fixed(&buffer);
    line.print(format, values) catch {};
    out.say(line.buffered());
}
