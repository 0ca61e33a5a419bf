//! The files beside the weights: the model folder's config, the kit, the token map, the Engram tables.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const Engram = @import("model.zig").Engram;

pub const Error = error{ ModelNotFound, UnexpectedLayout, BadKit, ShortRopeTable, BadTokenMap } || sys.Failure;
const text_limit = 16 << 20;
const rope_tables = [_][]const u8{
    "rope-plain-cos.f32", "rope-plain-sin.f32", "rope-compressed-cos.f32", "rope-compressed-sin.f32",
};

const Config = struct {
    vocab_size: usize,
    max_position_embeddings: usize,
    dense_rows: []const usize,
    engram_blocks: usize,
    engram_block_bytes: usize,
};

fn json(comptime T: type, path: [:0]const u8) !T {
    const text = try sys.readFile(path, text_limit);
    return std.json.parseFromSliceLeaky(T, sys.gpa, text, .{ .ignore_unknown_fields = true });
}

/// Check a model folder against this build's layout; its window in tokens.
pub fn modelWindow(model: []const u8) Error!usize {
    const config = json(Config, sys.join(model, "config.json")) catch |problem| switch (problem) {
        error.NotFound => return error.ModelNotFound,
        else => return error.UnexpectedLayout,
    };
    const same = config.vocab_size == layout.vocab and std.mem.eql(usize, config.dense_rows, &layout.dense_rows) and
        config.engram_blocks == layout.engram_blocks and config.engram_block_bytes == layout.block_bytes;
    if (!same) return error.UnexpectedLayout;
    for ([_][]const u8{ "tokenizer.json", "tokenizer_config.json", "chat_template.jinja" }) |name| {
        if (!sys.exists(sys.join(model, name))) return error.ModelNotFound;
    }
    return config.max_position_embeddings;
}

const Rope = struct { rows: usize, columns: usize };
const Aot = struct { kernels: []const struct { sha256: []const u8 } };

/// Check a kit: its description of kernels in `aot`, their files, and RoPE tables that cover `context`.
pub fn checkKit(kit: []const u8, aot: []const u8, context: usize) Error!void {
    const rope = json(Rope, sys.join(kit, "rope.json")) catch return error.BadKit;
    if (rope.rows < context) return error.ShortRopeTable;
    for (rope_tables) |name| {
        const fd = sys.openRead(sys.join(kit, name)) catch return error.BadKit;
        defer sys.close(fd);
        if (try sys.size(fd) < rope.rows * rope.columns * @sizeOf(f32)) return error.ShortRopeTable;
    }
    const kernels = json(Aot, sys.join(aot, "aot.json")) catch return error.BadKit;
    for (kernels.kernels) |kernel| {
        const name = std.fmt.allocPrint(sys.gpa, "cubins/{s}.cubin", .{kernel.sha256}) catch return error.OutOfMemory;
        if (!sys.exists(sys.join(aot, name))) return error.BadKit;
    }
}

/// The canonical token of every token.
pub fn tokenMap(path: []const u8) Error![]const layout.Token {
    const map = json([]const layout.Token, sys.zero(path)) catch return error.BadTokenMap;
    if (map.len < layout.vocab) return error.BadTokenMap;
    for (map) |token| if (token >= layout.vocab) return error.BadTokenMap;
    return map;
}

/// The Engram tables of a folder, which need the token map; null without a folder.
pub fn engram(folder: ?[]const u8, map: ?[]const u8) !?Engram {
    const path = folder orelse return null;
    return try Engram.open(path, try tokenMap(map orelse return error.BadTokenMap));
}
