//! A cursor over the arguments of one command. Wrong usage becomes one line and exit 2 at the edge.

const std = @import("std");
const out = @import("out.zig");

pub const Usage = error{Usage};

pub const Arguments = struct {
    command: []const u8,
    rest: []const [*:0]const u8,

    /// The next argument, or null at the end.
    pub fn next(self: *Arguments) ?[:0]const u8 {
        if (self.rest.len == 0) return null;
        defer self.rest = self.rest[1..];
        return std.mem.span(self.rest[0]);
    }

    /// The value that must follow an option.
    pub fn value(self: *Arguments, option: []const u8) Usage![:0]const u8 {
        return self.next() orelse self.wrong("{s} needs a value", .{option});
    }

    /// A whole number between `low` and `high`, both allowed.
    pub fn number(self: *Arguments, comptime T: type, option: []const u8, low: T, high: T) Usage!T {
        const text = try self.value(option);
        const parsed = std.fmt.parseInt(T, text, 10) catch return self.outOfRange(T, option, text, low, high);
        if (parsed < low or parsed > high) return self.outOfRange(T, option, text, low, high);
        return parsed;
    }

    fn outOfRange(self: *Arguments, comptime T: type, option: []const u8, text: []const u8, low: T, high: T) Usage {
        return self.wrong("{s} {s}: a whole number from {d} to {d} is needed", .{ option, text, low, high });
    }

    /// Says what is wrong; the caller leaves with the error.
    pub fn wrong(self: *const Arguments, comptime format: []const u8, args: anytype) Usage {
        var buffer: [1024]u8 = undefined;
        var line: std.Io.Writer = .fixed(&buffer);
        line.print(format, args) catch {};
        out.complain("{s}: {s}; see twinfold-node {s} --help", .{ self.command, line.buffered(), self.command });
        return error.Usage;
    }
};
