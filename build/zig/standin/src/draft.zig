//! Drafts: rank 0's cheap guess at the next tokens, checked by every rank in one round. A wrong guess costs time, never text.

const std = @import("std");
const layout = @import("layout.zig");
const Model = @import("model.zig").Model;
const Token = layout.Token;

const lookup_context = 8;
const lookup_window = 4096;

/// Guess up to `out.len` tokens after `history`: what followed the same eight tokens last time, else the draft table.
pub fn guess(model: *const Model, history: []const Token, out: []Token) []const Token {
    if (followed(history)) |after| {
        const count = @min(after.len, out.len);
        @memcpy(out[0..count], after[0..count]);
        return out[0..count];
    }
    var recent: [layout.draft_order]Token = undefined;
    if (history.len < recent.len) return out[0..0];
    @memcpy(&recent, history[history.len - recent.len ..]);
    for (out, 0..) |*token, count| {
        token.* = model.guess(&recent) orelse return out[0..count];
        if (token.* == layout.end) return out[0 .. count + 1];
        std.mem.copyForwards(Token, recent[0 .. recent.len - 1], recent[1..]);
        recent[recent.len - 1] = token.*;
    }
    return out;
}

fn followed(history: []const Token) ?[]const Token {
    if (history.len <= lookup_context) return null;
    const recent = history[history.len - lookup_context ..];
    const window = history[history.len -| lookup_window .. history.len - 1];
    const at = std.mem.lastIndexOf(Token, window, recent) orelse return null;
    return history[history.len -| lookup_window..][at + lookup_context ..];
}
