//! Which samples are worth a line: each costs its readers more than its taking costs the guard. Pure.

const std = @import("std");
const decide = @import("decide.zig");

/// While memory is calm a sample is told so long after the last: each half second at the usual period, with its jitter.
const rest_ns = 450 * std.time.ns_per_ms;
/// A move by more than this share of what is left above the hard floor is news.
const share = 64;
/// So is a fall that would reach the hard floor this soon.
const near_s = 60;

pub const Calm = struct {
    told: ?decide.Sample = null,
    was_calm: bool = true,

    /// Whether to tell this sample of a rank that is only watched: each unless memory is calm, and the first calm one.
    pub fn tells(self: *Calm, against: decide.Floor, sample: decide.Sample, verdict: decide.Verdict) bool {
        const calm = self.isCalm(against, sample, verdict);
        const news = !calm or !self.was_calm;
        self.was_calm = calm;
        if (!news and sample.at_ns -| self.told.?.at_ns < rest_ns) return false;
        self.told = sample;
        return true;
    }

    fn isCalm(self: *const Calm, against: decide.Floor, sample: decide.Sample, verdict: decide.Verdict) bool {
        const told_bytes = (self.told orelse return false).available_bytes;
        if (verdict.level != .ok) return false;
        if (verdict.to_hard_s) |left_s| if (left_s < near_s) return false;
        const moved = @max(told_bytes, sample.available_bytes) - @min(told_bytes, sample.available_bytes);
        return moved <= (sample.available_bytes -| against.hard_bytes) / share;
    }

    /// The next sample is told: somebody new listens, or something else has changed.
    pub fn wake(self: *Calm) void {
        self.told = null;
    }
};

const testing = std.testing;
const gib = 1 << 30;
const floor: decide.Floor = .{ .hard_bytes = gib, .soft_bytes = 2 * gib, .horizon_ns = 1, .stale_ns = 1 };

fn at(ms: u64, available_bytes: u64) decide.Sample {
    return .{ .at_ns = ms * std.time.ns_per_ms, .available_bytes = available_bytes };
}

test "every half second while memory stands still, at any period" {
    inline for (.{ 10, 100, 500 }) |period| {
        var calm: Calm = .{};
        var told: u32 = 0;
        for (0..10_000 / period) |tick| {
            told += @intFromBool(calm.tells(floor, at(tick * period, 65 * gib), .{ .level = .ok }));
        }
        try testing.expect(20 <= told and told <= 25);
    }
}

test "a move, a fall that is near, a floor, its end and a new listener are told at once" {
    var calm: Calm = .{};
    try testing.expect(calm.tells(floor, at(0, 65 * gib), .{ .level = .ok }));
    try testing.expect(calm.tells(floor, at(10, 65 * gib), .{ .level = .ok })); // the first calm one
    const fall = 65 * gib - gib / 2;
    try testing.expect(!calm.tells(floor, at(20, fall), .{ .level = .ok, .falling_bytes_per_s = 1, .to_hard_s = 61 }));
    try testing.expect(calm.tells(floor, at(30, fall), .{ .level = .ok, .falling_bytes_per_s = 1, .to_hard_s = 59 }));
    try testing.expect(calm.tells(floor, at(40, 60 * gib), .{ .level = .ok }));
    try testing.expect(calm.tells(floor, at(50, 60 * gib), .{ .level = .soft }));
    try testing.expect(calm.tells(floor, at(60, 60 * gib), .{ .level = .ok }));
    try testing.expect(!calm.tells(floor, at(70, 60 * gib), .{ .level = .ok }));
    calm.wake();
    try testing.expect(calm.tells(floor, at(80, 60 * gib), .{ .level = .ok }));
}
