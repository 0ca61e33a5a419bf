//! Memory at start: what the system has, what rank 0 keeps free, and whether its weights fit.

const std = @import("std");
const sys = @import("sys.zig");

pub const gib = 1 << 30;
const least_reserve_bytes = 4 * gib;

pub const Room = struct {
    available_bytes: u64,
    reserve_bytes: u64,
    model_bytes: u64,

    /// What is left for contexts.
    pub fn left(self: Room) u64 {
        return self.available_bytes -| self.model_bytes -| self.reserve_bytes;
    }

    pub fn fits(self: Room) bool {
        return self.available_bytes >= self.model_bytes + self.reserve_bytes;
    }
};

/// Read `proc`/meminfo; null when it cannot be read or lacks a field.
pub fn room(proc: []const u8, reserve_gib: ?f64, model_bytes: u64) ?Room {
    const text = sys.readFile(sys.join(proc, "meminfo"), 1 << 20) catch return null;
    const available = field(text, "MemAvailable:") orelse return null;
    const total = field(text, "MemTotal:") orelse return null;
    const reserve = if (reserve_gib) |given| @as(u64, @intFromFloat(given * gib)) else @max(least_reserve_bytes, total / 10);
    return .{ .available_bytes = available, .reserve_bytes = reserve, .model_bytes = model_bytes };
}

fn field(text: []const u8, name: []const u8) ?u64 {
    var lines = std.mem.splitScalar(u8, text, '\n');
    while (lines.next()) |line| {
        if (!std.mem.startsWith(u8, line, name)) continue;
        var words = std.mem.tokenizeScalar(u8, line[name.len..], ' ');
        const kib = std.fmt.parseInt(u64, words.next() orelse return null, 10) catch return null;
        return kib << 10;
    }
    return null;
}

pub fn inGib(bytes: u64) f64 {
    return @as(f64, @floatFromInt(bytes)) / gib;
}
