//! Which samples are worth a line: each costs its readers more than its taking costs the guard. Pure.

const std = @import("std");
const decide = @import("decide.zig");

/// While memory is calm one sample in so many is told.
const every = 5;
/// A move by more than this share of what is left above the hard floor is news.
const share = 64;
/// So is a fall that would reach the hard floor this soon.
const near_s = 60;

pub const Calm = struct {
    /// The last sample told, and how many were passed over since.
    told_bytes: ?u64 = null,
    passed: u32 = 0,

    /// Whether to tell this sample of a rank that is watched and no more: every one unless memory is calm.
    pub fn tells(self: *Calm, against: decide.Floor, available_bytes: u64, verdict: decide.Verdict) bool {
        if (self.passed + 1 < every and self.rests(against, available_bytes, verdict)) {
            self.passed += 1;
            return false;
        }
        self.passed = 0;
        self.told_bytes = available_bytes;
        return true;
    }

    fn rests(self: *const Calm, against: decide.Floor, available_bytes: u64, verdict: decide.Verdict) bool {
        const told_bytes = self.told_bytes orelse return false;
        if (verdict.level != .ok) return false;
        if (verdict.to_hard_s) |left_s| if (left_s < near_s) return false;
        const moved = @max(told_bytes, available_bytes) - @min(told_bytes, available_bytes);
        return moved <= (available_bytes -| against.hard_bytes) / share;
    }

    /// The next sample is told: somebody new listens, or something else has changed.
    pub fn wake(self: *Calm) void {
        self.told_bytes = null;
    }
};

const testing = std.testing;
const gib = 1 << 30;
const floor: decide.Floor = .{ .hard_bytes = gib, .soft_bytes = 2 * gib, .horizon_ns = 1, .stale_ns = 1 };

test "one sample in five while memory stands still" {
    var calm: Calm = .{};
    var told: u32 = 0;
    for (0..20) |_| told += @intFromBool(calm.tells(floor, 65 * gib, .{ .level = .ok }));
    try testing.expectEqual(4, told);
}

test "a move, a fall that is near, a floor and a new listener are told at once" {
    var calm: Calm = .{};
    try testing.expect(calm.tells(floor, 65 * gib, .{ .level = .ok }));
    try testing.expect(!calm.tells(floor, 65 * gib - gib / 2, .{ .level = .ok, .falling_bytes_per_s = 1, .to_hard_s = 61 }));
    try testing.expect(calm.tells(floor, 65 * gib - gib / 2, .{ .level = .ok, .falling_bytes_per_s = 1, .to_hard_s = 59 }));
    try testing.expect(calm.tells(floor, 60 * gib, .{ .level = .ok }));
    try testing.expect(calm.tells(floor, 60 * gib, .{ .level = .soft }));
    try testing.expect(!calm.tells(floor, 60 * gib, .{ .level = .ok }));
    calm.wake();
    try testing.expect(calm.tells(floor, 60 * gib, .{ .level = .ok }));
}
