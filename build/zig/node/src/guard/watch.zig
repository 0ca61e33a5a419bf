//! What the guard does to its rank, as a machine of four phases. Pure: facts of a moment in, one action out.

const std = @import("std");
const Level = @import("decide.zig").Level;

pub const Phase = enum { watching, stopping, killed, ended };

/// Why the rank was ended by us.
pub const Cause = enum { hard, slope, peer, supervisor };

pub const Action = enum { none, term, kill };

/// The facts of one moment.
pub const Facts = struct {
    now_ms: u64,
    level: Level = .ok,
    peer_silent: bool = false,
    supervisor_silent: bool = false,
};

/// From a lease's SIGTERM to SIGKILL: the peer is gone, there is nothing to finish with it.
pub const peer_grace_ms = 500;

pub const Watch = struct {
    stop_timeout_ms: u64,
    phase: Phase = .watching,
    cause: ?Cause = null,
    kill_at_ms: u64 = 0,

    pub fn step(self: *Watch, facts: Facts) Action {
        return switch (self.phase) {
            .watching => self.watching(facts),
            .stopping => if (facts.level.kills() or facts.now_ms >= self.kill_at_ms) self.kill() else .none,
            .killed, .ended => .none,
        };
    }

    fn watching(self: *Watch, facts: Facts) Action {
        if (facts.level.kills()) {
            self.cause = if (facts.level == .hard) .hard else .slope;
            return self.kill();
        }
        if (facts.peer_silent) return self.stop(.peer, facts.now_ms + peer_grace_ms);
        if (facts.supervisor_silent) return self.stop(.supervisor, facts.now_ms + self.stop_timeout_ms);
        return .none;
    }

    fn stop(self: *Watch, cause: Cause, kill_at_ms: u64) Action {
        self.cause = cause;
        self.phase = .stopping;
        self.kill_at_ms = kill_at_ms;
        return .term;
    }

    fn kill(self: *Watch) Action {
        self.phase = .killed;
        return .kill;
    }

    /// The signal could not be sent: try again at the next moment.
    pub fn refused(self: *Watch) void {
        if (self.phase == .killed) self.phase = .stopping;
        self.kill_at_ms = 0;
    }

    pub fn ended(self: *Watch) void {
        self.phase = .ended;
    }

    pub fn exitCode(self: Watch) u8 {
        return switch (self.cause orelse return 0) {
            .hard => 10,
            .slope => 11,
            .peer => 13,
            .supervisor => 14,
        };
    }
};

const testing = std.testing;

test "the floor kills at once, whatever else is the matter" {
    for ([_]Level{ .hard, .slope }, [_]u8{ 10, 11 }) |level, code| {
        var watch: Watch = .{ .stop_timeout_ms = 30_000 };
        try testing.expectEqual(.none, watch.step(.{ .now_ms = 1, .level = .soft }));
        try testing.expectEqual(.kill, watch.step(.{ .now_ms = 2, .level = level, .peer_silent = true }));
        try testing.expectEqual(.none, watch.step(.{ .now_ms = 3, .level = level }));
        try testing.expectEqual(code, watch.exitCode());
    }
}

test "a silent peer: SIGTERM, then SIGKILL half a second later" {
    var watch: Watch = .{ .stop_timeout_ms = 30_000 };
    try testing.expectEqual(.term, watch.step(.{ .now_ms = 1000, .peer_silent = true, .supervisor_silent = true }));
    try testing.expectEqual(.none, watch.step(.{ .now_ms = 1499, .peer_silent = true }));
    try testing.expectEqual(.kill, watch.step(.{ .now_ms = 1500 }));
    try testing.expectEqual(13, watch.exitCode());
}

test "a silent supervisor: in order, but the floor does not wait" {
    var watch: Watch = .{ .stop_timeout_ms = 30_000 };
    try testing.expectEqual(.term, watch.step(.{ .now_ms = 0, .supervisor_silent = true }));
    try testing.expectEqual(.none, watch.step(.{ .now_ms = 29_999, .level = .stale }));
    try testing.expectEqual(.kill, watch.step(.{ .now_ms = 29_999, .level = .hard }));
    try testing.expectEqual(14, watch.exitCode());
}

test "a signal that was refused is sent again" {
    var watch: Watch = .{ .stop_timeout_ms = 0 };
    try testing.expectEqual(.kill, watch.step(.{ .now_ms = 5, .level = .hard }));
    watch.refused();
    try testing.expectEqual(.kill, watch.step(.{ .now_ms = 6 }));
    watch.ended();
    try testing.expectEqual(.none, watch.step(.{ .now_ms = 7, .level = .hard }));
}
