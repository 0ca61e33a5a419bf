//! TCP over IPv4: listen, accept, connect.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

pub const Address = struct {
    octets: [4]u8,
    port: u16,

    /// An IPv4 literal; null for anything else, a host name included.
    pub fn parse(host: []const u8, port: u16) ?Address {
        var octets: [4]u8 = undefined;
        var parts = std.mem.splitScalar(u8, host, '.');
        for (&octets) |*octet| {
            const part = parts.next() orelse return null;
            if (part.len > 3) return null;
            octet.* = std.fmt.parseInt(u8, part, 10) catch return null;
        }
        if (parts.next() != null) return null;
        return .{ .octets = octets, .port = port };
    }

    fn raw(self: Address) linux.sockaddr.in {
        return .{ .port = std.mem.nativeToBig(u16, self.port), .addr = @bitCast(self.octets) };
    }
};

fn socket() sys.Failure!i32 {
    return @intCast(try sys.check(linux.socket(linux.AF.INET, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0)));
}

fn setInt(fd: i32, level: i32, option: u32, value: i32) void {
    _ = linux.setsockopt(fd, level, option, std.mem.asBytes(&value), @sizeOf(i32));
}

/// No delay for small frames.
pub fn hurry(fd: i32) void {
    setInt(fd, linux.IPPROTO.TCP, linux.TCP.NODELAY, 1);
}

/// Limit every receive (or, with `SO.SNDTIMEO`, every send) on a socket; 0 for no limit.
pub fn limit(fd: i32, option: u32, limit_s: u32) void {
    const value = linux.timeval{ .sec = limit_s, .usec = 0 };
    _ = linux.setsockopt(fd, linux.SOL.SOCKET, option, std.mem.asBytes(&value), @sizeOf(linux.timeval));
}

pub fn listen(address: Address) sys.Failure!i32 {
    const fd = try socket();
    errdefer sys.close(fd);
    setInt(fd, linux.SOL.SOCKET, linux.SO.REUSEADDR, 1);
    const raw = address.raw();
    _ = try sys.check(linux.bind(fd, @ptrCast(&raw), @sizeOf(linux.sockaddr.in)));
    _ = try sys.check(linux.listen(fd, 512));
    return fd;
}

/// The next connection, with its peer's address.
pub fn accept(fd: i32, peer: *[4]u8) sys.Failure!i32 {
    var raw: linux.sockaddr.in = undefined;
    var length: linux.socklen_t = @sizeOf(linux.sockaddr.in);
    const from: ?*linux.sockaddr = @ptrCast(&raw);
    const client: i32 = @intCast(try sys.retry(linux.accept4, .{ fd, from, &length, linux.SOCK.CLOEXEC }));
    peer.* = @bitCast(raw.addr);
    hurry(client);
    return client;
}

pub fn connect(address: Address) sys.Failure!i32 {
    const fd = try socket();
    errdefer sys.close(fd);
    const raw = address.raw();
    const to: *const anyopaque = @ptrCast(&raw);
    _ = try sys.retry(linux.connect, .{ fd, to, @as(linux.socklen_t, @sizeOf(linux.sockaddr.in)) });
    hurry(fd);
    return fd;
}
