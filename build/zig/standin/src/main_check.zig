//! tf-dsv41-check MODEL CACHE RANK WORLD: compare a packed file with its checkpoint. JSON ending in "ok"; exit 0 or 1.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const safetensors = @import("safetensors.zig");
const rankfile = @import("rankfile.zig");

const usage = "usage: tf-dsv41-check MODEL CACHE RANK WORLD";

pub fn main(init: std.process.Init.Minimal) void {
    var given: [4][]const u8 = undefined;
    var count: usize = 0;
    var iterator = init.args.iterate();
    _ = iterator.skip();
    while (iterator.next()) |arg| : (count += 1) {
        if (count == given.len) sys.fail(2, usage, .{});
        given[count] = arg;
    }
    if (count != given.len) sys.fail(2, usage, .{});
    const rank = std.fmt.parseInt(usize, given[2], 10) catch sys.fail(2, usage, .{});
    const world = std.fmt.parseInt(usize, given[3], 10) catch sys.fail(2, usage, .{});
    if ((world != 1 and world != 2 and world != 4) or rank >= world) sys.fail(2, usage, .{});
    check(given[0], given[1], rank, world) catch |problem| {
        sys.out("{{\"rank\": {d}, \"world\": {d}, \"error\": \"{s}\", \"ok\": false}}", .{ rank, world, @errorName(problem) });
        sys.exit(1);
    };
}

fn check(model: []const u8, cache: []const u8, rank: usize, world: usize) !void {
    const file = try rankfile.open(cache, rank, world);
    const folder = try safetensors.Folder.open(model);
    for (layout.dense_names, layout.dense_rows) |name, rows| {
        const source = try safetensors.load(try folder.tensor(name, "U8", &.{ rows, layout.vocab }));
        const packed_bytes = try file.load(name, "uint8", &.{ rows, layout.columns(world) });
        if (!sameColumns(source, packed_bytes, rank, layout.columns(world))) return error.WeightsDiffer;
    }
    if (file.find(layout.draft_name) != null) {
        const source = try safetensors.load(try folder.tensor(layout.draft_name, "U16", &.{layout.draft_rows}));
        const packed_bytes = try file.load(layout.draft_name, "uint16", &.{layout.draft_rows});
        if (!std.mem.eql(u8, source, packed_bytes)) return error.WeightsDiffer;
    }
    sys.out("{{\"file\": \"{s}\", \"rank\": {d}, \"world\": {d}, \"entries\": {d}, \"data_bytes\": {d}, \"ok\": true}}", .{
        std.fs.path.basename(file.path), rank, world, file.rows.len, file.data_bytes,
    });
}

fn sameColumns(source: []const u8, packed_bytes: []const u8, rank: usize, width: usize) bool {
    for (0..source.len / layout.vocab) |row| {
        const wanted = source[row * layout.vocab + rank * width ..][0..width];
        if (!std.mem.eql(u8, wanted, packed_bytes[row * width ..][0..width])) return false;
    }
    return true;
}
