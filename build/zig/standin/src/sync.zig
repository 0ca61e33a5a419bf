//! What threads wait on, over Linux futexes.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

const private_wait = linux.FUTEX_OP{ .cmd = .WAIT, .private = true };
const private_wake = linux.FUTEX_OP{ .cmd = .WAKE, .private = true };

/// A lock: 0 free, 1 held, 2 held with waiters (Drepper, "Futexes Are Tricky", mutex 2).
pub const Lock = struct {
    state: std.atomic.Value(u32) = .init(0),

    pub fn lock(self: *Lock) void {
        if (self.state.cmpxchgStrong(0, 1, .acquire, .monotonic) == null) return;
        while (self.state.swap(2, .acquire) != 0) _ = linux.futex_4arg(&self.state.raw, private_wait, 2, null);
    }

    pub fn unlock(self: *Lock) void {
        if (self.state.swap(0, .release) == 2) _ = linux.futex_3arg(&self.state.raw, private_wake, 1);
    }
};

/// A counter that threads wait on: read it, look at the guarded data, then wait for it to move on.
pub const Signal = struct {
    count: std.atomic.Value(u32) = .init(0),

    pub fn read(self: *Signal) u32 {
        return self.count.load(.acquire);
    }

    pub fn notify(self: *Signal) void {
        _ = self.count.fetchAdd(1, .release);
        _ = linux.futex_3arg(&self.count.raw, private_wake, std.math.maxInt(i32));
    }

    /// Wait until the counter differs from `seen`, at most `limit_ns`.
    pub fn wait(self: *Signal, seen: u32, limit_ns: u64) void {
        const limit = sys.timespec(limit_ns);
        _ = linux.futex_4arg(&self.count.raw, private_wait, seen, &limit);
    }
};
