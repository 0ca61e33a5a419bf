//! The demo model's shape. The trainer (build/demo) writes it into config.json; ranks refuse a checkpoint with another.

pub const vocab = 288;

pub const Token = u16;
pub const begin: Token = 256;
pub const system: Token = 257;
pub const user: Token = 258;
pub const assistant: Token = 259;
pub const tool: Token = 260;
pub const end: Token = 261;
pub const think: Token = 262;
pub const end_think: Token = 263;
pub const image: Token = 264;
pub const tool_call: Token = 265;
pub const end_tool_call: Token = 266;

/// Rows of the dense table of each order, order 0 first.
pub const dense_rows = [_]usize{ 1, vocab, 4096, 8192, 16384 };
pub const dense_names = [_][]const u8{
    "layers.0.ngram.weight", "layers.1.ngram.weight", "layers.2.ngram.weight", "layers.3.ngram.weight", "layers.4.ngram.weight",
};
pub const draft_name = "draft.next.weight";
pub const draft_order = 4;
pub const draft_rows = 16384;
pub const no_draft: Token = 0xFFFF;

pub const engram_names = [_][]const u8{ "engram.0.table", "engram.1.table" };
pub const engram_blocks = 1024;
pub const block_bytes = 4096;
pub const record_bytes = 8;
/// The longest context that any table looks at.
pub const window = 28;
pub const topic_window = 6;
pub const topic_salt = 255;

/// What a full weight (255) of each memory is worth. A known topic beats a long context that belongs to another question;
/// among answers of one topic the long contexts decide.
pub const dense_worth = [_]u32{ 1, 2, 8, 24, 64 };
pub const Memory = struct { table: u8, order: u8, worth: u32 };
pub const memories = [_]Memory{
    .{ .table = 0, .order = 6, .worth = 200 },
    .{ .table = 0, .order = 10, .worth = 500 },
    .{ .table = 1, .order = 16, .worth = 1500 },
    .{ .table = 1, .order = 28, .worth = 4000 },
};
pub const topic_worth = 7500;
pub const topic_buckets = 8;

/// The columns of one rank.
pub fn columns(world: usize) usize {
    return vocab / world;
}
