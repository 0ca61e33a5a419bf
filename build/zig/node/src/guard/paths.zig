//! The lease's sockets: one a path, heard and told without ever waiting.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const net = @import("../net.zig");
const lease = @import("lease.zig");
const options = @import("options.zig");

/// The rate is set so that ten seconds hold twenty packets a path: with a third of them lost, silence is one in 10^9.
pub const send_every_ms = 500;
/// A flood on one path may not keep the guard from its samples.
const most_at_once = 32;

pub const Ears = struct {
    receiver: lease.Receiver,
    fds: [options.most_paths]sys.Fd = undefined,
    bound: [options.most_paths]net.Address = undefined,
    heard_ms: [options.most_paths]?u64 = @splat(null),
    count: usize = 0,

    pub fn open(self: *Ears, addresses: []const net.Address) sys.Failed!void {
        for (addresses) |address| {
            const fd = try net.udp(address.isV6());
            try net.allowAbsentAddress(fd, address.isV6());
            try net.bind(fd, address);
            self.fds[self.count] = fd;
            self.bound[self.count] = try net.boundTo(fd);
            self.count += 1;
        }
    }

    /// Takes in what has come on every path.
    pub fn listen(self: *Ears, now_ms: u64) void {
        for (self.fds[0..self.count], self.heard_ms[0..self.count]) |fd, *heard_ms| {
            for (0..most_at_once) |_| {
                var packet: [lease.packet_bytes + 1]u8 = undefined;
                const length = sys.check(linux.recvfrom(fd, &packet, packet.len, 0, null, null)) catch {
                    if (sys.last == .AGAIN) break else continue;
                };
                switch (self.receiver.hear(packet[0..length], now_ms)) {
                    .renewed, .repeated => heard_ms.* = now_ms,
                    .old, .foreign => {},
                }
            }
        }
    }
};

pub const Mouths = struct {
    launch: lease.Launch,
    fds: [options.most_paths]sys.Fd = undefined,
    peers: [options.most_paths]net.Address = undefined,
    /// Sends in a row that the kernel refused, a path each: no route, no such source address.
    refused: [options.most_paths]u32 = @splat(0),
    count: usize = 0,
    next_ms: u64 = 0,

    pub fn open(self: *Mouths, paths: []const options.SendPath) sys.Failed!void {
        for (paths) |path| {
            const fd = try net.udp(path.to.isV6());
            if (path.from) |from| {
                try net.allowAbsentAddress(fd, from.isV6());
                try net.bind(fd, from);
            }
            self.fds[self.count] = fd;
            self.peers[self.count] = path.to;
            self.count += 1;
        }
    }

    /// The same packet on every path, when it is time.
    pub fn tell(self: *Mouths, now_ms: u64) void {
        if (self.count == 0 or now_ms < self.next_ms) return;
        self.next_ms = now_ms + send_every_ms;
        const packet = self.launch.encode(sys.clockNs(.BOOTTIME) / std.time.ns_per_ms);
        for (self.fds[0..self.count], self.peers[0..self.count], self.refused[0..self.count]) |fd, *peer, *refused| {
            const sent = sys.check(linux.sendto(fd, &packet, packet.len, 0, &peer.raw.any, peer.length()));
            refused.* = if (sent) |_| 0 else |_| refused.* +| 1;
        }
    }
};
