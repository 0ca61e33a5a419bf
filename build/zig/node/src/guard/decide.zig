//! The floor's decision: samples in, a verdict out. Pure; the same formulas as `supervisor/memory/policy.py`, which a test holds
//! it to.

const std = @import("std");

/// Two neighbouring samples of the slope are at least this far apart: nearer ones measure noise.
pub const slope_step_ns = 90 * std.time.ns_per_ms;
/// The slope's three samples lie within this: older ones say nothing about now.
pub const slope_span_ns = 600 * std.time.ns_per_ms;

pub const Floor = struct {
    hard_bytes: u64,
    soft_bytes: u64,
    /// Kill when the hard floor is less than this away at the present fall.
    horizon_ns: u64,
    /// A sample older than this when it is judged never acts.
    stale_ns: u64,
};

pub const Sample = struct { at_ns: u64, available_bytes: u64 };

pub const Level = enum {
    ok,
    stale,
    soft,
    hard,
    slope,

    pub fn kills(self: Level) bool {
        return self == .hard or self == .slope;
    }
};

pub const Verdict = struct {
    level: Level,
    /// The sustained fall, 0 where memory does not fall.
    falling_bytes_per_s: f64 = 0,
    /// Time to the hard floor at that fall; null where memory does not fall.
    to_hard_s: ?f64 = null,

    /// Whole numbers for those who read lines.
    pub fn fallingBytes(self: Verdict) u64 {
        return std.math.lossyCast(u64, self.falling_bytes_per_s);
    }

    pub fn toHardMs(self: Verdict) ?u64 {
        return if (self.to_hard_s) |left_s| std.math.lossyCast(u64, left_s * 1000) else null;
    }
};

/// The newest samples that a slope may use.
pub const Recent = struct {
    kept: [capacity]Sample = undefined,
    count: usize = 0,

    /// Enough for `slope_span_ns` at the shortest period.
    const capacity = 64;

    /// The new sample last; one that is not newer than the last adds nothing.
    pub fn add(self: *Recent, sample: Sample) void {
        if (self.count > 0 and sample.at_ns <= self.kept[self.count - 1].at_ns) return;
        var first: usize = if (self.count == capacity) 1 else 0;
        while (first < self.count and sample.at_ns - self.kept[first].at_ns > slope_span_ns) first += 1;
        std.mem.copyForwards(Sample, self.kept[0 .. self.count - first], self.kept[first..self.count]);
        self.count -= first;
        self.kept[self.count] = sample;
        self.count += 1;
    }

    /// How fast available memory falls, in bytes a second: the slower of the two newest steps, so that one allocation, or one
    /// noisy reading, is no slope. 0 where it does not fall, or where too few samples are near enough.
    pub fn sustainedFall(self: *const Recent) f64 {
        var steps: [3]Sample = undefined;
        var found: usize = 0;
        var at = self.count;
        while (at > 0 and found < steps.len) {
            at -= 1;
            const sample = self.kept[at];
            if (found > 0 and steps[found - 1].at_ns - sample.at_ns < slope_step_ns) continue;
            steps[found] = sample;
            found += 1;
        }
        if (found < steps.len or steps[0].at_ns - steps[2].at_ns > slope_span_ns) return 0;
        return @max(0, @min(fall(steps[1], steps[0]), fall(steps[2], steps[1])));
    }
};

fn fall(before: Sample, after: Sample) f64 {
    const bytes = @as(f64, @floatFromInt(before.available_bytes)) - @as(f64, @floatFromInt(after.available_bytes));
    return bytes / seconds(after.at_ns - before.at_ns);
}

fn seconds(ns: u64) f64 {
    return @as(f64, @floatFromInt(ns)) / std.time.ns_per_s;
}

/// Takes one sample in and says what it calls for.
pub fn judge(floor: Floor, recent: *Recent, sample: Sample, now_ns: u64) Verdict {
    if (now_ns -| sample.at_ns > floor.stale_ns) return .{ .level = .stale };
    recent.add(sample);
    const falling = recent.sustainedFall();
    const above: f64 = @floatFromInt(sample.available_bytes -| floor.hard_bytes);
    const to_hard_s: ?f64 = if (falling > 0) above / falling else null;
    const level = levelOf(floor, sample.available_bytes, to_hard_s);
    return .{ .level = level, .falling_bytes_per_s = falling, .to_hard_s = to_hard_s };
}

fn levelOf(floor: Floor, available_bytes: u64, to_hard_s: ?f64) Level {
    if (available_bytes < floor.hard_bytes) return .hard;
    if (to_hard_s) |left_s| {
        if (left_s < seconds(floor.horizon_ns)) return .slope;
    }
    return if (available_bytes < floor.soft_bytes) .soft else .ok;
}

/// Whether memory has come back after the rank's end: at the soft floor or above for a second, and no longer growing.
pub const Recovery = struct {
    held_since_ns: ?u64 = null,
    highest_bytes: u64 = 0,

    const steady_ns = std.time.ns_per_s;
    const growth_bytes = 64 << 20;

    pub fn add(self: *Recovery, floor: Floor, sample: Sample) bool {
        if (sample.available_bytes < floor.soft_bytes or sample.available_bytes > self.highest_bytes + growth_bytes) {
            self.highest_bytes = sample.available_bytes;
            self.held_since_ns = if (sample.available_bytes < floor.soft_bytes) null else sample.at_ns;
        }
        const since = self.held_since_ns orelse return false;
        return sample.at_ns - since >= steady_ns;
    }
};

const testing = std.testing;
const gib = 1 << 30;
const ms = std.time.ns_per_ms;

/// Samples in tenths of GiB, 100 ms apart; the level of the last.
fn levelAfter(floor: Floor, tenths: []const u64) Level {
    var recent: Recent = .{};
    var verdict: Verdict = .{ .level = .ok };
    for (tenths, 0..) |value, i| {
        const at = 1000 * ms + i * 100 * ms;
        verdict = judge(floor, &recent, .{ .at_ns = at, .available_bytes = value * gib / 10 }, at);
    }
    return verdict.level;
}

test "levels" {
    const floor: Floor = .{ .hard_bytes = 2 * gib, .soft_bytes = 4 * gib, .horizon_ns = 500 * ms, .stale_ns = 300 * ms };
    try testing.expectEqual(.ok, levelAfter(floor, &.{ 400, 400, 400 }));
    try testing.expectEqual(.ok, levelAfter(floor, &.{40}));
    try testing.expectEqual(.soft, levelAfter(floor, &.{39}));
    try testing.expectEqual(.soft, levelAfter(floor, &.{20}));
    try testing.expectEqual(.hard, levelAfter(floor, &.{19}));
    try testing.expectEqual(.ok, levelAfter(floor, &.{ 340, 330, 320, 310 })); // 10 GiB/s, 2.9 s away
    try testing.expectEqual(.slope, levelAfter(floor, &.{ 85, 75, 65 })); // 10 GiB/s, 0.45 s away
    try testing.expectEqual(.ok, levelAfter(floor, &.{ 200, 200, 60 })); // one step is no slope
    try testing.expectEqual(.ok, levelAfter(floor, &.{ 200, 100, 60, 60 })); // a fall that has stopped
    try testing.expectEqual(.ok, levelAfter(floor, &.{ 200, 60, 200, 200 })); // one noisy reading
}

test "a stale sample never acts, and a gap is no slope" {
    const floor: Floor = .{ .hard_bytes = 2 * gib, .soft_bytes = 4 * gib, .horizon_ns = 500 * ms, .stale_ns = 300 * ms };
    var recent: Recent = .{};
    try testing.expectEqual(.stale, judge(floor, &recent, .{ .at_ns = 0, .available_bytes = 0 }, 301 * ms).level);
    for ([_]u64{ 0, 700, 1400 }, [_]u64{ 9, 7, 5 }) |at, available| {
        const sample: Sample = .{ .at_ns = at * ms, .available_bytes = available * gib };
        try testing.expectEqual(.ok, judge(floor, &recent, sample, at * ms).level);
    }
}

test "recovered once above the floor and steady for a second" {
    const floor: Floor = .{ .hard_bytes = 2 * gib, .soft_bytes = 4 * gib, .horizon_ns = 500 * ms, .stale_ns = 300 * ms };
    var recovery: Recovery = .{};
    var at: u64 = 0;
    for ([_]u64{ 1, 3, 5, 9, 20 }) |available| {
        at += 500 * ms;
        try testing.expect(!recovery.add(floor, .{ .at_ns = at, .available_bytes = available * gib }));
    }
    try testing.expect(!recovery.add(floor, .{ .at_ns = at + 900 * ms, .available_bytes = 20 * gib }));
    try testing.expect(recovery.add(floor, .{ .at_ns = at + 1000 * ms, .available_bytes = 20 * gib }));
}
