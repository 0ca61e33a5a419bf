//! Standard output and standard error without the standard library's I/O layer.

const std = @import("std");
const sys = @import("sys.zig");
const Writer = std.Io.Writer;

/// A buffered Writer over a file descriptor.
pub const FdWriter = struct {
    fd: sys.Fd,
    interface: Writer,

    pub fn init(fd: sys.Fd, buffer: []u8) FdWriter {
        return .{ .fd = fd, .interface = .{ .buffer = buffer, .vtable = &.{ .drain = drain } } };
    }

    fn drain(writer: *Writer, data: []const []const u8, splat: usize) Writer.Error!usize {
        const self: *FdWriter = @alignCast(@fieldParentPtr("interface", writer));
        try self.send(writer.buffered());
        writer.end = 0;
        var consumed: usize = 0;
        for (data[0 .. data.len - 1]) |bytes| {
            try self.send(bytes);
            consumed += bytes.len;
        }
        for (0..splat) |_| {
            try self.send(data[data.len - 1]);
            consumed += data[data.len - 1].len;
        }
        return consumed;
    }

    fn send(self: *FdWriter, bytes: []const u8) Writer.Error!void {
        sys.writeAll(self.fd, bytes) catch return error.WriteFailed;
    }
};

/// One `error: …` line on standard error. Text too long for a line is cut.
pub fn complain(comptime format: []const u8, args: anytype) void {
    var buffer: [8192]u8 = undefined;
    var line: Writer = .fixed(buffer[0 .. buffer.len - 1]);
    line.print("error: " ++ format, args) catch {};
    const length = line.buffered().len;
    buffer[length] = '\n';
    sys.writeAll(2, buffer[0 .. length + 1]) catch {};
}

/// Text for standard output, as `--help` prints it.
pub fn say(text: []const u8) void {
    sys.writeAll(1, text) catch {};
}
