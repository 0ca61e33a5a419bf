//! Internet addresses and UDP sockets, IPv4 and IPv6, as literals only: a node tool resolves no names.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const IpAddress = std.Io.net.IpAddress;

pub const Address = struct {
    raw: extern union { any: linux.sockaddr, in: linux.sockaddr.in, in6: linux.sockaddr.in6 },

    /// `192.0.2.1` or `2001:db8::1` with a port apart.
    pub fn parse(text: []const u8, port: u16) ?Address {
        return of(IpAddress.parse(text, port) catch return null);
    }

    /// `192.0.2.1:7000` or `[2001:db8::1]:7000`.
    pub fn parseWithPort(text: []const u8) ?Address {
        if (std.mem.findScalar(u8, text, ':') == null) return null;
        return of(IpAddress.parseLiteral(text) catch return null);
    }

    fn of(parsed: IpAddress) Address {
        return switch (parsed) {
            .ip4 => |ip| .{ .raw = .{ .in = .{ .port = std.mem.nativeToBig(u16, ip.port), .addr = @bitCast(ip.bytes) } } },
            .ip6 => |ip| .{ .raw = .{ .in6 = .{
                .port = std.mem.nativeToBig(u16, ip.port),
                .flowinfo = 0,
                .addr = ip.bytes,
                .scope_id = 0,
            } } },
        };
    }

    pub fn isV6(self: Address) bool {
        return self.raw.any.family == linux.AF.INET6;
    }

    pub fn length(self: Address) linux.socklen_t {
        return if (self.isV6()) @sizeOf(linux.sockaddr.in6) else @sizeOf(linux.sockaddr.in);
    }

    /// `address:port`, IPv6 in brackets, as it was parsed.
    pub fn format(self: Address, writer: *std.Io.Writer) std.Io.Writer.Error!void {
        if (self.isV6()) {
            const port = std.mem.bigToNative(u16, self.raw.in6.port);
            const ip: IpAddress = .{ .ip6 = .{ .bytes = self.raw.in6.addr, .port = port } };
            return ip.format(writer);
        }
        const b: [4]u8 = @bitCast(self.raw.in.addr);
        try writer.print("{d}.{d}.{d}.{d}:{d}", .{ b[0], b[1], b[2], b[3], std.mem.bigToNative(u16, self.raw.in.port) });
    }
};

/// A UDP socket that does not block, and closes on exec.
pub fn udp(v6: bool) sys.Failed!sys.Fd {
    const kind = linux.SOCK.DGRAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;
    return @intCast(try sys.check(linux.socket(if (v6) linux.AF.INET6 else linux.AF.INET, kind, 0)));
}

pub fn bind(fd: sys.Fd, address: Address) sys.Failed!void {
    _ = try sys.check(linux.bind(fd, &address.raw.any, address.length()));
}

pub fn connect(fd: sys.Fd, address: Address) sys.Failed!void {
    _ = try sys.check(linux.connect(fd, &address.raw.any, address.length()));
}

/// Where the socket is bound, with the port the kernel chose for 0.
pub fn boundTo(fd: sys.Fd) sys.Failed!Address {
    var address: Address = .{ .raw = .{ .in6 = std.mem.zeroes(linux.sockaddr.in6) } };
    var size: linux.socklen_t = @sizeOf(linux.sockaddr.in6);
    _ = try sys.check(linux.getsockname(fd, &address.raw.any, &size));
    return address;
}

pub fn setOption(fd: sys.Fd, level: i32, name: u32, value: c_int) sys.Failed!void {
    _ = try sys.check(linux.setsockopt(fd, level, name, std.mem.asBytes(&value), @sizeOf(c_int)));
}

/// Lets a socket be bound to an address that no interface has at the moment: a rail that is down now and up later.
pub fn allowAbsentAddress(fd: sys.Fd, v6: bool) sys.Failed!void {
    const ipv6_freebind = 78; // linux/in6.h
    return if (v6) setOption(fd, linux.IPPROTO.IPV6, ipv6_freebind, 1) else setOption(fd, linux.IPPROTO.IP, linux.IP.FREEBIND, 1);
}

/// Sends whole packets or none, whatever path MTU the kernel remembers.
pub fn forbidFragments(fd: sys.Fd, v6: bool) sys.Failed!void {
    if (!v6) return setOption(fd, linux.IPPROTO.IP, linux.IP.MTU_DISCOVER, linux.IP.PMTUDISC_PROBE);
    try setOption(fd, linux.IPPROTO.IPV6, linux.IPV6.MTU_DISCOVER, linux.IPV6.PMTUDISC_PROBE);
    try setOption(fd, linux.IPPROTO.IPV6, linux.IPV6.DONTFRAG, 1);
}

pub fn bindToDevice(fd: sys.Fd, name: []const u8) sys.Failed!void {
    _ = try sys.check(linux.setsockopt(fd, linux.SOL.SOCKET, linux.SO.BINDTODEVICE, name.ptr, @intCast(name.len)));
}

/// Waits until the descriptor can be read, or errs; false after `timeout_ms`.
pub fn readable(fd: sys.Fd, timeout_ms: u64) bool {
    var polled = [_]linux.pollfd{.{ .fd = fd, .events = linux.POLL.IN, .revents = 0 }};
    const ready = sys.check(linux.poll(&polled, 1, @intCast(@min(timeout_ms, std.math.maxInt(i32))))) catch return false;
    return ready > 0;
}

test "addresses as people write them" {
    var buffer: [64]u8 = undefined;
    for ([_][]const u8{ "192.0.2.1:7000", "[2001:db8::1]:7000" }) |text| {
        var out: std.Io.Writer = .fixed(&buffer);
        try Address.parseWithPort(text).?.format(&out);
        try std.testing.expectEqualStrings(text, out.buffered());
    }
    for ([_][]const u8{ "spark-b:7000", "192.0.2.1", "192.0.2.1:x", "2001:db8::1" }) |text|
        try std.testing.expect(Address.parseWithPort(text) == null);
    try std.testing.expect(Address.parse("2001:db8::1", 1) != null);
}
