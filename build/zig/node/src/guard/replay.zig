//! `guard --replay`: the decision alone, over a series from standard input. For tests, and for asking what would have happened.

const std = @import("std");
const sys = @import("../sys.zig");
const out = @import("../out.zig");
const decide = @import("decide.zig");
const Allocator = std.mem.Allocator;

/// Exit 1 at a line that is not "T_MS AVAILABLE_BYTES".
pub fn run(floor: decide.Floor, arena: Allocator) !u8 {
    var text: std.ArrayList(u8) = .empty;
    while (true) {
        const room = try text.addManyAsSlice(arena, 64 << 10);
        const count = try sys.read(0, room);
        text.shrinkRetainingCapacity(text.items.len - room.len + count);
        if (count == 0) break;
    }
    var writer: out.FdWriter = .init(1, try sys.mapBytes(64 << 10));
    var recent: decide.Recent = .{};
    var lines = std.mem.tokenizeScalar(u8, text.items, '\n');
    while (lines.next()) |line| {
        const sample = parse(line) orelse {
            out.complain("guard --replay: {s}: T_MS AVAILABLE_BYTES is needed", .{line});
            return 1;
        };
        const verdict = decide.judge(floor, &recent, sample, sample.at_ns);
        try writer.interface.print("{{\"t_ms\":{d},\"level\":\"{t}\",\"falling_bytes_per_s\":{d}}}\n", .{
            sample.at_ns / std.time.ns_per_ms, verdict.level, verdict.fallingBytes(),
        });
    }
    try writer.interface.flush();
    return 0;
}

fn parse(line: []const u8) ?decide.Sample {
    var fields = std.mem.tokenizeAny(u8, line, " \t");
    const at_ms = std.fmt.parseInt(u32, fields.next() orelse return null, 10) catch return null;
    const available_bytes = std.fmt.parseInt(u63, fields.next() orelse return null, 10) catch return null;
    if (fields.next() != null) return null;
    return .{ .at_ns = @as(u64, at_ms) * std.time.ns_per_ms, .available_bytes = available_bytes };
}
