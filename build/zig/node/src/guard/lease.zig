//! A lease's packets and when one has run out. Pure: bytes and times in, verdicts out.
//!
//! Packet, 64 bytes, integers little-endian: magic "TFLS", version (1), three zeros, the first 16 bytes of sha256 over the launch
//! id, the sender's milliseconds since its boot, and HMAC-SHA256 over all that with the launch's secret. The sender's clock only
//! grows, also over a restart of its guard, so it is the sequence number and the age at once.

const std = @import("std");
const HmacSha256 = std.crypto.auth.hmac.sha2.HmacSha256;

pub const packet_bytes = signed_bytes + HmacSha256.mac_length;
const signed_bytes = 32;
const magic = "TFLS";
const version = 1;
pub const Packet = [packet_bytes]u8;

/// What both ends of a launch share.
pub const Launch = struct {
    secret: []const u8,
    tag: [16]u8,

    pub fn init(id: []const u8, secret: []const u8) Launch {
        var digest: [32]u8 = undefined;
        std.crypto.hash.sha2.Sha256.hash(id, &digest, .{});
        return .{ .secret = secret, .tag = digest[0..16].* };
    }

    pub fn encode(self: Launch, sent_ms: u64) Packet {
        var packet: Packet = @splat(0);
        packet[0..4].* = magic.*;
        packet[4] = version;
        packet[8..24].* = self.tag;
        std.mem.writeInt(u64, packet[24..32], sent_ms, .little);
        HmacSha256.create(packet[signed_bytes..], packet[0..signed_bytes], self.secret);
        return packet;
    }

    /// When it was sent, by the sender's clock; null for what is no packet of this launch.
    fn open(self: Launch, packet: []const u8) ?u64 {
        if (packet.len != packet_bytes or !std.mem.startsWith(u8, packet, magic) or packet[4] != version) return null;
        if (!std.mem.eql(u8, packet[8..24], &self.tag)) return null;
        var expected: [HmacSha256.mac_length]u8 = undefined;
        HmacSha256.create(&expected, packet[0..signed_bytes], self.secret);
        if (!std.crypto.timing_safe.eql([HmacSha256.mac_length]u8, expected, packet[signed_bytes..packet_bytes].*)) return null;
        return std.mem.readInt(u64, packet[24..32], .little);
    }
};

pub const Verdict = enum {
    /// Newer than all before: the lease runs from now.
    renewed,
    /// Heard before on another path: the path works, the lease is as it was.
    repeated,
    /// Older than what was heard, or held back for longer than the lease: it proves nothing.
    old,
    /// Not ours: another launch, another secret, no packet.
    foreign,
};

/// The hearing end.
pub const Receiver = struct {
    launch: Launch,
    timeout_ms: u64,
    /// Without a packet the lease counts from here.
    armed_ms: u64,
    newest_sent_ms: u64 = 0,
    heard_ms: ?u64 = null,
    /// Our clock less the sender's at the quickest packet so far, and when that was.
    quickest_ms: i64 = std.math.maxInt(i64),
    quickest_at_ms: u64 = 0,

    pub fn hear(self: *Receiver, packet: []const u8, now_ms: u64) Verdict {
        const sent_ms = self.launch.open(packet) orelse return .foreign;
        if (sent_ms == self.newest_sent_ms) return .repeated;
        if (sent_ms < self.newest_sent_ms or self.heldBack(sent_ms, now_ms)) return .old;
        self.newest_sent_ms = sent_ms;
        self.heard_ms = now_ms;
        return .renewed;
    }

    /// Against packets recorded and played later, each new by its number: a packet may not have taken longer than the lease
    /// beyond the quickest one. The quickest is let grow by a thousandth of the time, more than two clocks drift apart.
    fn heldBack(self: *Receiver, sent_ms: u64, now_ms: u64) bool {
        const apart = @as(i64, @intCast(now_ms)) -| @as(i64, @intCast(@min(sent_ms, std.math.maxInt(i64))));
        const drift: i64 = @intCast((now_ms - self.quickest_at_ms) / 1000);
        if (apart <= self.quickest_ms +| drift) {
            self.quickest_ms = apart;
            self.quickest_at_ms = now_ms;
            return false;
        }
        return apart - self.quickest_ms - drift > @as(i64, @intCast(self.timeout_ms));
    }

    /// Whether the lease has run out.
    pub fn silent(self: Receiver, now_ms: u64) bool {
        return now_ms > (self.heard_ms orelse self.armed_ms) + self.timeout_ms;
    }

    /// Time in which this guard itself did not run is no silence of the peer.
    pub fn forgive(self: *Receiver, gap_ms: u64) void {
        if (self.heard_ms) |*heard| heard.* += gap_ms else self.armed_ms += gap_ms;
    }
};

const testing = std.testing;

fn receiver(secret: []const u8) Receiver {
    return .{ .launch = .init("launch-1", secret), .timeout_ms = 10_000, .armed_ms = 60_000 };
}

test "authentic packets renew once, on whatever path they come first" {
    var ours = receiver("0123456789abcdef");
    const packet = ours.launch.encode(7_000);
    try testing.expectEqual(.renewed, ours.hear(&packet, 500));
    try testing.expectEqual(.repeated, ours.hear(&packet, 600));
    try testing.expectEqual(.renewed, ours.hear(&ours.launch.encode(7_500), 1_000));
    try testing.expectEqual(.old, ours.hear(&packet, 1_100));
    try testing.expectEqual(1_000, ours.heard_ms.?);
}

test "what is not ours is foreign" {
    var ours = receiver("0123456789abcdef");
    try testing.expectEqual(.foreign, ours.hear(&receiver("another secret!!").launch.encode(1), 1));
    try testing.expectEqual(.foreign, ours.hear(&Launch.init("launch-2", "0123456789abcdef").encode(1), 1));
    const packet = ours.launch.encode(7_000);
    for (0..packet_bytes) |i| {
        var bent = packet;
        bent[i] ^= 1;
        try testing.expectEqual(.foreign, ours.hear(&bent, 1));
    }
    try testing.expectEqual(.foreign, ours.hear(packet[0 .. packet_bytes - 1], 1));
    try testing.expect(ours.heard_ms == null);
}

test "packets kept back for longer than the lease renew nothing, slow ones and drifting clocks do" {
    var ours = receiver("0123456789abcdef");
    _ = ours.hear(&ours.launch.encode(1_000), 101_000);
    try testing.expectEqual(.old, ours.hear(&ours.launch.encode(1_500), 111_600));
    try testing.expectEqual(.renewed, ours.hear(&ours.launch.encode(11_000), 120_000)); // 9 s late
    var now_ms: u64 = 120_000;
    var sent_ms: u64 = 11_000;
    for (0..100) |_| { // a day in which the sender's clock loses half a second
        now_ms += 864_000;
        sent_ms += 863_950;
        try testing.expectEqual(.renewed, ours.hear(&ours.launch.encode(sent_ms), now_ms));
    }
}

test "silence counts from the last packet, or from the arming" {
    var ours = receiver("0123456789abcdef");
    try testing.expect(!ours.silent(70_000));
    try testing.expect(ours.silent(70_001));
    _ = ours.hear(&ours.launch.encode(1), 5_000);
    try testing.expect(!ours.silent(15_000));
    try testing.expect(ours.silent(15_001));
    ours.forgive(3_000);
    try testing.expect(!ours.silent(18_000));
}
