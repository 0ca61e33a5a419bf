//! The guarded rank: a pidfd from registration on, so that a reused pid is never touched.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");

pub const Rank = struct {
    pid: linux.pid_t,
    pidfd: sys.Fd,

    /// Holds the process of that pid and start time; null when it is gone or another one has its pid. The check comes after the
    /// open, so what is checked is what is held.
    pub fn register(pid: linux.pid_t, start_ticks: u64) sys.Failed!?Rank {
        const pidfd: sys.Fd = @intCast(sys.check(linux.pidfd_open(pid, 0)) catch |err| {
            return if (sys.last == .SRCH or sys.last == .INVAL) null else err;
        });
        errdefer sys.close(pidfd);
        const found = startTicks(pid) orelse return null;
        if (found != start_ticks) return null;
        return .{ .pid = pid, .pidfd = pidfd };
    }

    pub fn signal(self: Rank, what: linux.SIG) sys.Failed!void {
        _ = try sys.check(linux.pidfd_send_signal(self.pidfd, what, null, 0));
    }

    /// Whether we could signal it when it counts.
    pub fn mayBeSignalled(self: Rank) bool {
        _ = sys.check(linux.syscall4(.pidfd_send_signal, @intCast(self.pidfd), 0, 0, 0)) catch return sys.last == .SRCH;
        return true;
    }
};

/// Field 22 of the pid's stat; null when it is gone.
fn startTicks(pid: linux.pid_t) ?u64 {
    var path: [32]u8 = undefined;
    const name = std.fmt.bufPrintSentinel(&path, "/proc/{d}/stat", .{pid}, 0) catch unreachable;
    const fd = sys.open(name, .{ .CLOEXEC = true }) catch return null;
    defer sys.close(fd);
    var text: [1024]u8 = undefined;
    const length = sys.read(fd, &text) catch return null;
    return parseStartTicks(text[0..length]);
}

/// The second field, the name, may hold anything: fields are counted from its last parenthesis.
fn parseStartTicks(text: []const u8) ?u64 {
    const after = std.mem.findScalarLast(u8, text, ')') orelse return null;
    var fields = std.mem.tokenizeScalar(u8, text[after + 1 ..], ' ');
    for (3..22) |_| _ = fields.next() orelse return null;
    return std.fmt.parseInt(u64, fields.next() orelse return null, 10) catch null;
}

test "start ticks behind a name with parentheses and spaces" {
    const text = "7 (a) S 9 (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 999 1\n";
    try std.testing.expectEqual(123456, parseStartTicks(text).?);
    try std.testing.expect(parseStartTicks("7 (a) S 1") == null);
}
