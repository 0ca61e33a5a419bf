//! Keeps the guard itself alive and on time when memory is gone: locked pages, no OOM kill, a scheduling class above the rank's.
//! Each is taken where it is allowed, and the hello line says what was.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");

pub const Protection = struct {
    locked: bool,
    oom_score_adj: i32,
    scheduling: Scheduling,

    const Scheduling = enum { fifo, nice, normal };

    pub fn take() Protection {
        touchStack();
        const locked = if (sys.check(linux.mlockall(.{ .CURRENT = true, .FUTURE = true }))) |_| true else |_| false;
        return .{ .locked = locked, .oom_score_adj = neverKill(), .scheduling = goFirst() };
    }
};

/// The loop's deepest frames are well below this; a locked stack need not grow any more then.
noinline fn touchStack() void {
    var frames: [96 << 10]u8 = undefined;
    const touched: *volatile [96 << 10]u8 = &frames;
    var at: usize = 0;
    while (at < touched.len) : (at += 4096) touched[at] = 0;
}

/// Writes -1000 and says what the kernel has then.
fn neverKill() i32 {
    const fd = sys.open("/proc/self/oom_score_adj", .{ .ACCMODE = .RDWR, .CLOEXEC = true }) catch return 0;
    defer sys.close(fd);
    sys.writeAll(fd, "-1000") catch {};
    var text: [16]u8 = undefined;
    const length = sys.pread(fd, &text, 0) catch return 0;
    return std.fmt.parseInt(i32, std.mem.trim(u8, text[0..length], " \n"), 10) catch 0;
}

fn goFirst() Protection.Scheduling {
    const lowest: linux.sched_param = .{ .priority = 1 };
    if (sys.check(linux.sched_setscheduler(0, .{ .mode = .FIFO }, &lowest))) |_| return .fifo else |_| {}
    const niceness: isize = -20;
    if (sys.check(linux.syscall3(.setpriority, 0, 0, @bitCast(niceness)))) |_| return .nice else |_| return .normal;
}
