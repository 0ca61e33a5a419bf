//! The two kernel files of the guard, parsed: `meminfo` and `pressure/memory`.

const std = @import("std");

pub const Memory = struct { available_bytes: u64, free_bytes: u64 };

/// Shares of stalled time over ten seconds, in hundredths of a percent.
pub const Pressure = struct { some_avg10: u32, full_avg10: u32 };

/// Null unless both figures are there, each on a whole line: a file caught while it is rewritten says nothing.
pub fn memory(text: []const u8) ?Memory {
    return .{
        .available_bytes = field(text, "MemAvailable:") orelse return null,
        .free_bytes = field(text, "MemFree:") orelse return null,
    };
}

fn field(text: []const u8, name: []const u8) ?u64 {
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |line| {
        if (!std.mem.startsWith(u8, line, name)) continue;
        if (lines.index == null) return null; // no line end yet
        const value = std.mem.trim(u8, line[name.len..], " \t\r");
        if (!std.mem.endsWith(u8, value, " kB")) return null;
        const kib = std.fmt.parseInt(u64, std.mem.trim(u8, value[0 .. value.len - 3], " "), 10) catch return null;
        return std.math.mul(u64, kib, 1024) catch null;
    }
    return null;
}

/// Null where the text is none (kernels without PSI). A system without a `full` line counts it as 0.
pub fn pressure(text: []const u8) ?Pressure {
    return .{ .some_avg10 = average(text, "some ") orelse return null, .full_avg10 = average(text, "full ") orelse 0 };
}

fn average(text: []const u8, row: []const u8) ?u32 {
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |line| {
        if (!std.mem.startsWith(u8, line, row)) continue;
        const rest = line[row.len..];
        if (!std.mem.startsWith(u8, rest, "avg10=")) return null;
        return hundredths(std.mem.sliceTo(rest["avg10=".len..], ' '));
    }
    return null;
}

/// `12.34` as 1234: the kernel always prints two decimals.
fn hundredths(text: []const u8) ?u32 {
    const point = std.mem.findScalar(u8, text, '.') orelse return null;
    if (text.len != point + 3) return null;
    const whole = std.fmt.parseInt(u32, text[0..point], 10) catch return null;
    const part = std.fmt.parseInt(u32, text[point + 1 ..], 10) catch return null;
    return std.math.add(u32, std.math.mul(u32, whole, 100) catch return null, part) catch null;
}

const testing = std.testing;

test "meminfo" {
    const whole = "MemTotal:       127600748 kB\nMemFree:        92274688 kB\nMemAvailable:   97517568 kB\n";
    try testing.expectEqual(Memory{ .available_bytes = 97517568 * 1024, .free_bytes = 92274688 * 1024 }, memory(whole).?);
    try testing.expect(memory(whole[0 .. whole.len - 1]) == null);
    try testing.expect(memory(whole[0 .. whole.len - 4]) == null);
    try testing.expect(memory("MemFree: 1 kB\n") == null);
    try testing.expect(memory("MemFree: 1 kB\nMemAvailable: 99999999999999999999 kB\n") == null);
    try testing.expect(memory("") == null);
}

test "pressure" {
    const text = "some avg10=1.53 avg60=0.87 avg300=0.20 total=1\nfull avg10=12.00 avg60=0.00 avg300=0.00 total=0\n";
    try testing.expectEqual(Pressure{ .some_avg10 = 153, .full_avg10 = 1200 }, pressure(text).?);
    try testing.expect(pressure("") == null);
    try testing.expect(pressure("some avg10=x avg60=0\n") == null);
}
