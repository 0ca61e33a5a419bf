//! The topic of a question, as build/demo/topic.py finds it: its image, else an operation on two numbers, else the longest word.

const std = @import("std");
const keys = @import("keys.zig");
const layout = @import("layout.zig");

const tail_bytes = 200;
const Operator = struct { text: []const u8, sign: u8 };
/// Longest first where one begins another.
const operators = [_]Operator{
    .{ .text = "times", .sign = '*' },
    .{ .text = "multiplied by", .sign = '*' },
    .{ .text = "x", .sign = '*' },
    .{ .text = "*", .sign = '*' },
    .{ .text = "plus", .sign = '+' },
    .{ .text = "+", .sign = '+' },
    .{ .text = "minus", .sign = '-' },
    .{ .text = "-", .sign = '-' },
};

/// The topic of one user turn's bytes as a number.
pub fn of(question: []const u8) u64 {
    var tail: [tail_bytes]u8 = undefined;
    const from = question.len -| tail_bytes;
    const text = std.ascii.lowerString(&tail, question[from..]);
    var buffer: [16]u8 = undefined;
    return keys.fnv1a(imageMark(question) orelse lastSum(text, &buffer) orelse longestWord(text));
}

/// The stand-in topic for one that was never seen.
pub fn bucket(topic: u64) u64 {
    var buffer: [8]u8 = undefined;
    return keys.fnv1a(std.fmt.bufPrint(&buffer, "any:{d}", .{topic % layout.topic_buckets}) catch unreachable);
}

/// "[COLOUR image]" at the beginning.
fn imageMark(question: []const u8) ?[]const u8 {
    if (question.len == 0 or question[0] != '[') return null;
    var to: usize = 1;
    while (to < question.len and std.ascii.isLower(question[to])) to += 1;
    const ending = " image]";
    if (to == 1 or to > 11 or !std.mem.startsWith(u8, question[to..], ending)) return null;
    return question[0 .. to + ending.len];
}

/// The last non-overlapping "digits operator digits", found from the left as a regular expression finds them.
fn lastSum(text: []const u8, buffer: []u8) ?[]const u8 {
    var found: ?[]const u8 = null;
    var at: usize = 0;
    while (at < text.len) {
        if (sumAt(text, at)) |sum| {
            found = std.fmt.bufPrint(buffer, "{s}{c}{s}", .{ sum.left, sum.sign, sum.right }) catch unreachable;
            at = sum.end;
        } else at += 1;
    }
    return found;
}

const Sum = struct { left: []const u8, sign: u8, right: []const u8, end: usize };

fn sumAt(text: []const u8, at: usize) ?Sum {
    const left = digits(text, at);
    if (left.len == 0) return null;
    const operator_at = skipSpaces(text, at + left.len);
    for (operators) |operator| {
        if (!std.mem.startsWith(u8, text[operator_at..], operator.text)) continue;
        const right_at = skipSpaces(text, operator_at + operator.text.len);
        const right = digits(text, right_at);
        if (right.len == 0) continue;
        return .{ .left = left, .sign = operator.sign, .right = right, .end = right_at + right.len };
    }
    return null;
}

/// Up to six digits from `at`.
fn digits(text: []const u8, at: usize) []const u8 {
    var to = at;
    while (to < text.len and to < at + 6 and std.ascii.isDigit(text[to])) to += 1;
    return text[at..to];
}

fn skipSpaces(text: []const u8, at: usize) usize {
    var to = at;
    while (to < text.len and text[to] == ' ') to += 1;
    return to;
}

fn longestWord(text: []const u8) []const u8 {
    var best: []const u8 = "";
    var at: usize = 0;
    while (at < text.len) {
        var to = at;
        while (to < text.len and std.ascii.isLower(text[to])) to += 1;
        if (to - at >= 5 and to - at > best.len) best = text[at..to];
        at = to + 1;
    }
    return best;
}
