//! One rank's part of the model: its columns of the dense tables, the draft table, and the Engram memories on disk.

const std = @import("std");
const sys = @import("sys.zig");
const keys = @import("keys.zig");
const layout = @import("layout.zig");
const topics = @import("topic.zig");
const rankfile = @import("rankfile.zig");
const safetensors = @import("safetensors.zig");
const Token = layout.Token;

/// Where a prediction is asked for: the newest tokens, the topic of the question, and how many of the tokens belong to
/// the reply (its assistant token included).
pub const Context = struct { tokens: []const Token, topic: u64, since: usize };

pub const Model = struct {
    first: usize,
    width: usize,
    dense: [layout.dense_rows.len][]const u8,
    /// The likeliest next token by row, or empty when the file was packed without it.
    draft: []const u8,
    engram: ?Engram,
    bytes: u64,

    pub fn load(file: rankfile.RankFile, rank: usize, world: usize, engram: ?Engram) rankfile.Error!Model {
        const width = layout.columns(world);
        var model = Model{ .first = rank * width, .width = width, .dense = undefined, .draft = "", .engram = engram, .bytes = 0 };
        for (layout.dense_names, layout.dense_rows, &model.dense) |name, rows, *table| {
            table.* = try file.load(name, "uint8", &.{ rows, width });
            model.bytes += table.len;
        }
        if (file.find(layout.draft_name) != null) {
            model.draft = try file.load(layout.draft_name, "uint16", &.{layout.draft_rows});
            model.bytes += model.draft.len;
        }
        return model;
    }

    /// Scores of this rank's columns for the token after `context`: a weighted sum over every memory that knows it.
    pub fn score(self: *const Model, context: Context, scores: []u32) void {
        @memset(scores, 0);
        for (self.dense, 0..) |table, order| {
            if (order > context.tokens.len) break;
            const row = denseRow(order, context.tokens);
            for (table[row * self.width ..][0..self.width], scores) |weight, *score_| {
                score_.* += layout.dense_worth[order] * weight;
            }
        }
        if (self.engram) |*engram| engram.score(context, self.first, scores);
    }

    /// The likeliest next token by a short context alone.
    pub fn guess(self: *const Model, tokens: []const Token) ?Token {
        if (self.draft.len == 0 or tokens.len < layout.draft_order) return null;
        const row = denseRow(layout.draft_order, tokens);
        const token = std.mem.readInt(u16, self.draft[row * 2 ..][0..2], .little);
        return if (token == layout.no_draft) null else token;
    }
};

fn denseRow(order: usize, tokens: []const Token) usize {
    if (order == 0) return 0;
    if (order == 1) return tokens[tokens.len - 1];
    var polynomial: u64 = 0;
    for (tokens[tokens.len - order ..]) |token| polynomial = keys.push(polynomial, token);
    return @intCast(keys.key(order, polynomial) % layout.dense_rows[order]);
}

/// The long memories: tables of 4 KiB blocks in two files, one block read for every key.
pub const Engram = struct {
    fds: [layout.engram_names.len]i32,
    offsets: [layout.engram_names.len]u64,
    canonical: []const Token,

    pub fn open(path: []const u8, canonical: []const Token) safetensors.Error!Engram {
        const folder = try safetensors.Folder.open(path);
        if (!sys.exists(sys.join(path, "config.json"))) return error.MissingTensor;
        var engram = Engram{ .fds = undefined, .offsets = undefined, .canonical = canonical };
        for (layout.engram_names, &engram.fds, &engram.offsets) |name, *fd, *offset| {
            const table = try folder.tensor(name, "U8", &.{ layout.engram_blocks, layout.block_bytes });
            fd.* = try sys.openRead(table.path);
            offset.* = table.offset;
        }
        return engram;
    }

    fn score(self: *const Engram, context: Context, first: usize, scores: []u32) void {
        for (layout.memories) |memory| {
            if (context.tokens.len < memory.order) continue;
            const key = keys.key(memory.order, self.polynomial(context.tokens, memory.order));
            _ = self.add(memory.table, key, memory.worth, first, scores);
        }
        if (context.since < 2) return;
        const polynomial_ = self.polynomial(context.tokens, @min(layout.topic_window, context.since, context.tokens.len));
        for ([_]u64{ context.topic, topics.bucket(context.topic) }) |topic| {
            const key = keys.topicKey(layout.topic_salt, polynomial_, topic);
            if (self.add(1, key, layout.topic_worth, first, scores)) break;
        }
    }

    fn polynomial(self: *const Engram, tokens: []const Token, length: usize) u64 {
        var value: u64 = 0;
        for (tokens[tokens.len - length ..]) |token| value = keys.push(value, self.canonical[token]);
        return value;
    }

    /// Add what the block of `key` remembers to the rank's columns. True when it knows the key, whatever the column.
    fn add(self: *const Engram, table: usize, key: u64, worth: u32, first: usize, scores: []u32) bool {
        var block: [layout.block_bytes]u8 = undefined;
        const offset = self.offsets[table] + (key >> 32) % layout.engram_blocks * layout.block_bytes;
        sys.readAt(self.fds[table], &block, offset) catch |problem| {
            sys.fail(1, "error.EngramRead: block at {d} of table {d}: {s}", .{ offset, table, @errorName(problem) });
        };
        const tag: u32 = @truncate(key);
        var known = false;
        var at: usize = 0;
        while (at < block.len) : (at += layout.record_bytes) {
            const weight = std.mem.readInt(u16, block[at + 6 ..][0..2], .little);
            if (weight == 0) break;
            if (std.mem.readInt(u32, block[at..][0..4], .little) != tag) continue;
            known = true;
            const token = std.mem.readInt(u16, block[at + 4 ..][0..2], .little);
            if (token >= first and token - first < scores.len) scores[token - first] += worth * weight;
        }
        return known;
    }
};
