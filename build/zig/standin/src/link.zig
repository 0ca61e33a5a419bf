//! Rank 0's side of the gang: the rendezvous, and one exchange a round with every other rank.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const net = @import("net.zig");
const wire = @import("wire.zig");

const hello_limit_s = 5;

pub const Link = struct {
    /// Sockets of ranks 1 and up.
    peers: []const i32,
    buffers: []std.ArrayList(u8),
    /// The rank that went away, once one has.
    lost: ?usize = null,

    /// Listen on the master address and wait, without end, until every other rank has come.
    pub fn rendezvous(address: net.Address, world: usize) sys.Failure!Link {
        const peers = try sys.gpa.alloc(i32, world - 1);
        const buffers = try sys.gpa.alloc(std.ArrayList(u8), world - 1);
        @memset(peers, -1);
        @memset(buffers, .empty);
        if (peers.len == 0) return .{ .peers = peers, .buffers = buffers };
        const listener = try net.listen(address);
        defer sys.close(listener);
        var missing = peers.len;
        while (missing > 0) {
            var from: [4]u8 = undefined;
            const fd = try net.accept(listener, &from);
            const rank = greet(fd, world) orelse {
                sys.close(fd);
                continue;
            };
            if (peers[rank - 1] < 0) missing -= 1 else sys.close(peers[rank - 1]);
            peers[rank - 1] = fd;
        }
        return .{ .peers = peers, .buffers = buffers };
    }

    /// Send one frame to every rank; `receive` then takes their answers, so that all ranks compute at the same time.
    pub fn send(self: *Link, frame: []const u8) error{PeerDown}!void {
        for (self.peers, 1..) |fd, rank| wire.send(fd, frame) catch return self.lose(rank);
    }

    /// Every rank's scores for the frame sent last. Waits without end for a rank that is there and silent.
    pub fn receive(self: *Link) error{PeerDown}!void {
        for (self.peers, self.buffers, 1..) |fd, *buffer, rank| _ = wire.receive(fd, buffer) catch return self.lose(rank);
    }

    fn lose(self: *Link, rank: usize) error{PeerDown} {
        self.lost = rank;
        return error.PeerDown;
    }
};

/// The rank that a new connection belongs to; null for a stranger, or one that says nothing.
fn greet(fd: i32, world: usize) ?usize {
    net.limit(fd, linux.SO.RCVTIMEO, hello_limit_s);
    var raw: [4 + @sizeOf(wire.Hello)]u8 = undefined;
    wire.receiveAll(fd, &raw) catch return null;
    net.limit(fd, linux.SO.RCVTIMEO, 0);
    const hello = std.mem.bytesToValue(wire.Hello, raw[4..]);
    if (hello.magic != wire.hello_magic or hello.world != world or hello.rank == 0 or hello.rank >= world) return null;
    return hello.rank;
}
