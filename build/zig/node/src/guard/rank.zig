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

    /// Lets a rank that has its SIGKILL die before others run: an exit needs CPU time too, of every thread, and on a machine that
    /// is busy running out of memory it would wait for it. Does nothing where it is not allowed. A pid is not given out again
    /// before the numbers have gone round once, so these threads are the rank's own.
    pub fn hurry(self: Rank) void {
        var path: [32]u8 = undefined;
        const name = std.fmt.bufPrintSentinel(&path, "/proc/{d}/task", .{self.pid}, 0) catch unreachable;
        const fd = sys.open(name, .{ .DIRECTORY = true, .CLOEXEC = true }) catch return;
        defer sys.close(fd);
        var records: [4096]u8 align(@alignOf(linux.dirent64)) = undefined;
        while (true) {
            const length = sys.check(linux.getdents64(fd, &records, records.len)) catch return;
            if (length == 0) return;
            var at: usize = 0;
            while (at < length) {
                const record: *align(1) const linux.dirent64 = @ptrCast(records[at..].ptr);
                goFirst(std.mem.sliceTo(records[at + @offsetOf(linux.dirent64, "name") .. at + record.reclen], 0));
                at += record.reclen;
            }
        }
    }

    /// Whether we could signal it when it counts.
    pub fn mayBeSignalled(self: Rank) bool {
        _ = sys.check(linux.syscall4(.pidfd_send_signal, @intCast(self.pidfd), 0, 0, 0)) catch return sys.last == .SRCH;
        return true;
    }
};

fn goFirst(thread: []const u8) void {
    const tid = std.fmt.parseInt(linux.pid_t, thread, 10) catch return; // "." and ".."
    const lowest: linux.sched_param = .{ .priority = 1 };
    _ = linux.sched_setscheduler(tid, .{ .mode = .FIFO }, &lowest);
}

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
