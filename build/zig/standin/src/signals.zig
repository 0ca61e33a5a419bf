//! An orderly end: SIGTERM and SIGINT come to one thread, which stops the board and leaves once every rank was told.

const std = @import("std");
const linux = std.os.linux;
const sync = @import("sync.zig");
const sys = @import("sys.zig");
const Board = @import("board.zig").Board;

/// How long an orderly end waits for the running round, in case a silent rank holds it.
const end_limit_ns = 3 * std.time.ns_per_s;

pub const Signals = struct {
    fd: i32,
    serving: std.atomic.Value(?*Board) = .init(null),
    ended: sync.Signal = .{},

    /// Block both signals in this thread and in those it starts; they then wait in a descriptor.
    pub fn block() sys.Failure!Signals {
        var set = linux.sigemptyset();
        linux.sigaddset(&set, .TERM);
        linux.sigaddset(&set, .INT);
        _ = try sys.check(linux.sigprocmask(linux.SIG.BLOCK, &set, null));
        return .{ .fd = @intCast(try sys.check(linux.signalfd(-1, &set, linux.SFD.CLOEXEC))) };
    }

    /// Wait for a signal, then end the process: at once before there is a board, else after its last round.
    pub fn watch(self: *Signals) void {
        var info: [128]u8 = undefined;
        _ = sys.retry(linux.read, .{ self.fd, @as([*]u8, &info), info.len }) catch {};
        const board = self.serving.load(.acquire) orelse sys.exit(0);
        const seen = self.ended.read();
        board.stop();
        if (seen == 0) self.ended.wait(0, end_limit_ns);
        sys.log("[tensorfold] ended", .{});
        sys.exit(0);
    }
};
