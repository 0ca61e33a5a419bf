//! The launch's secret, read once from a private file or an inherited descriptor; never from an argument or the environment.

const std = @import("std");
const sys = @import("../sys.zig");

const least_bytes = 16;
const most_bytes = 128;

pub const Secret = struct {
    buffer: [most_bytes + 2]u8 = undefined,
    length: usize = 0,

    pub const Error = sys.Failed || error{ NotPrivate, WrongLength };

    pub fn bytes(self: *const Secret) []const u8 {
        return self.buffer[0..self.length];
    }

    /// The descriptor is read to its end and closed.
    pub fn readFd(self: *Secret, fd: sys.Fd) Error!void {
        defer sys.close(fd);
        var length: usize = 0;
        while (length < self.buffer.len) {
            const count = try sys.read(fd, self.buffer[length..]);
            if (count == 0) break;
            length += count;
        }
        if (length > 0 and self.buffer[length - 1] == '\n') length -= 1;
        if (length < least_bytes or length > most_bytes) return error.WrongLength;
        self.length = length;
    }

    pub fn readFile(self: *Secret, path: [:0]const u8) Error!void {
        const fd = try sys.open(path, .{ .CLOEXEC = true });
        const found = sys.statFd(fd) catch |err| {
            sys.close(fd);
            return err;
        };
        if (found.mode & 0o077 != 0) {
            sys.close(fd);
            return error.NotPrivate;
        }
        try self.readFd(fd);
    }
};
