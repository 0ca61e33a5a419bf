//! One token out of its scores. Integers only, and a random number that depends on seed and position alone: the same reply
//! comes out on every machine, with and without drafts, alone and beside others.

const std = @import("std");
const keys = @import("keys.zig");
const layout = @import("layout.zig");
const Token = layout.Token;

pub const Sampling = struct {
    /// Thousandths; 0 takes the best token.
    temperature_milli: u32,
    top_p_milli: u32,
    /// 0 for no limit.
    top_k: u32,
    seed: u64,
};

const repeat_context = 12;
const repeat_window = 4096;
const repeat_shift = 6;
/// A token's chance is its score to this power at temperature 1: sums of memories are flatter than a model's softmax.
const sharpness = 3;

/// Weaken what would go on with a loop: a token that followed the last twelve tokens of `reply` before loses six bits of its
/// score for every time it did.
pub fn discourageRepeats(scores: []u32, reply: []const Token) void {
    if (reply.len <= repeat_context) return;
    const recent = reply[reply.len - repeat_context ..];
    var at = @max(reply.len -| repeat_window, repeat_context);
    while (at < reply.len) : (at += 1) {
        if (reply[at - 1] != recent[repeat_context - 1]) continue;
        if (std.mem.eql(Token, reply[at - repeat_context .. at], recent)) scores[reply[at]] >>= repeat_shift;
    }
}

pub fn pick(scores: []const u32, sampling: Sampling, position: usize) Token {
    if (sampling.temperature_milli == 0) return best(scores);
    var order: [layout.vocab]Token = undefined;
    var count: usize = 0;
    for (scores, 0..) |score, token| if (score > 0) {
        order[count] = @intCast(token);
        count += 1;
    };
    if (count == 0) return layout.end;
    std.mem.sortUnstable(Token, order[0..count], scores, higher);
    if (sampling.top_k > 0) count = @min(count, sampling.top_k);
    return draw(order[0..count], scores, sampling, keys.mix(sampling.seed ^ keys.mix(position)));
}

fn best(scores: []const u32) Token {
    var winner: usize = layout.end;
    for (scores, 0..) |score, token| {
        const equal = score == scores[winner] and score > 0;
        if (score > scores[winner] or (equal and token < winner)) winner = token;
    }
    return @intCast(winner);
}

fn higher(scores: []const u32, left: Token, right: Token) bool {
    if (scores[left] != scores[right]) return scores[left] > scores[right];
    return left < right;
}

fn draw(order: []const Token, scores: []const u32, sampling: Sampling, random: u64) Token {
    var weights: [layout.vocab]u64 = undefined;
    const top = log2(scores[order[0]]);
    var total: u64 = 0;
    for (order, weights[0..order.len]) |token, *weight| {
        weight.* = exp2Negative((top - log2(scores[token])) * sharpness * 1000 / sampling.temperature_milli);
        total += weight.*;
    }
    var kept: u64 = 0;
    var count: usize = 0;
    while (count < order.len and (count == 0 or kept * 1000 < total * sampling.top_p_milli)) : (count += 1) {
        kept += weights[count];
    }
    var left: u64 = @intCast((@as(u128, random) * kept) >> 64);
    for (order[0..count], weights[0..count]) |token, weight| {
        if (left < weight) return token;
        left -= weight;
    }
    return order[count - 1];
}

/// Base-2 logarithm of a positive integer with 16 fractional bits, by repeated squaring.
fn log2(value: u32) u64 {
    const whole: u6 = @intCast(31 - @clz(value));
    var fraction = (@as(u64, value) << 32) >> whole;
    var result: u64 = whole;
    for (0..16) |_| {
        fraction = @intCast((@as(u128, fraction) * fraction) >> 32);
        const bit = fraction >> 33;
        fraction >>= @intCast(bit);
        result = result << 1 | bit;
    }
    return result;
}

/// 2 to the minus `value` (16 fractional bits) with 32 fractional bits.
fn exp2Negative(value: u64) u64 {
    if (value >> 16 >= 32) return 0;
    var result: u64 = @as(u64, 1) << 32;
    for (roots, 0..) |root, place| {
        if (value >> @intCast(15 - place) & 1 == 1) result = result * root >> 32;
    }
    return result >> @intCast(value >> 16);
}

/// 2 to the minus 1/2, 1/4, ... 1/65536 with 32 fractional bits.
const roots = blk: {
    @setEvalBranchQuota(100_000);
    var values: [16]u64 = undefined;
    var last: u64 = 1 << 31;
    for (&values) |*value| {
        last = std.math.sqrt(last << 32);
        value.* = last;
    }
    break :blk values;
};
