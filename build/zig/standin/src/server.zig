//! What every route of one server shares.

const std = @import("std");
const Board = @import("board.zig").Board;
const Knobs = @import("knobs.zig").Knobs;
const Options = @import("options.zig").Options;

pub const Server = struct {
    options: Options,
    /// The model id that clients ask for.
    name: []const u8,
    api_key: ?[]const u8,
    /// The window in tokens.
    context: usize,
    world: usize,
    /// Pages of context memory, and what one costs on this rank.
    pages: usize,
    page_bytes: usize,
    model_bytes: u64,
    knobs: Knobs,
    board: *Board,
    created_s: u64,
    next_id: std.atomic.Value(u64) = .init(0),

    pub fn knows(self: *const Server, model: []const u8) bool {
        if (std.mem.eql(u8, model, self.name)) return true;
        for (self.options.aliases.items) |alias| if (std.mem.eql(u8, model, alias)) return true;
        return false;
    }
};
