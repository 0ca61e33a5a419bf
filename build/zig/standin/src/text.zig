//! Reply tokens as text: whole UTF-8 characters, what is broken replaced, thought and answer and tool calls told apart.

const std = @import("std");
const layout = @import("layout.zig");
const Token = layout.Token;

const replacement = "\u{FFFD}";

/// Bytes in, whole characters out. A character that is not complete waits for its rest.
pub const Utf8 = struct {
    pending: [4]u8 = undefined,
    len: usize = 0,

    pub fn push(self: *Utf8, byte: u8, out: *std.ArrayList(u8), memory: std.mem.Allocator) error{OutOfMemory}!void {
        if (self.len > 0 and byte & 0xC0 != 0x80) try self.flush(out, memory);
        self.pending[self.len] = byte;
        self.len += 1;
        const wanted = std.unicode.utf8ByteSequenceLength(self.pending[0]) catch return self.flush(out, memory);
        if (self.len < wanted) return;
        if (!std.unicode.utf8ValidateSlice(self.pending[0..self.len])) return self.flush(out, memory);
        try out.appendSlice(memory, self.pending[0..self.len]);
        self.len = 0;
    }

    /// Replace what is left over.
    pub fn flush(self: *Utf8, out: *std.ArrayList(u8), memory: std.mem.Allocator) error{OutOfMemory}!void {
        if (self.len == 0) return;
        self.len = 0;
        try out.appendSlice(memory, replacement);
    }
};

/// What new tokens add to a reply.
pub const Delta = struct { reasoning: []const u8, content: []const u8, call: []const u8 };

/// Splits a reply. Content holds back what could be the beginning of a stop text.
pub const Splitter = struct {
    memory: std.mem.Allocator,
    part: enum { reasoning, content, call },
    stops: []const []const u8 = &.{},
    utf8: Utf8 = .{},
    held: std.ArrayList(u8) = .empty,

    pub fn init(memory: std.mem.Allocator, thinking: bool, stops: []const []const u8) Splitter {
        return .{ .memory = memory, .part = if (thinking) .reasoning else .content, .stops = stops };
    }

    pub fn push(self: *Splitter, tokens: []const Token) error{OutOfMemory}!Delta {
        var reasoning: std.ArrayList(u8) = .empty;
        var call: std.ArrayList(u8) = .empty;
        for (tokens) |token| {
            const out = switch (self.part) {
                .reasoning => &reasoning,
                .content => &self.held,
                .call => &call,
            };
            if (token < 256) {
                try self.utf8.push(@intCast(token), out, self.memory);
                continue;
            }
            try self.utf8.flush(out, self.memory);
            self.part = if (token == layout.tool_call) .call else .content;
        }
        return .{ .reasoning = reasoning.items, .content = try self.takeContent(self.holdBack()), .call = call.items };
    }

    /// The rest, once the reply has ended. `stop` cuts the stop text that ended it.
    pub fn finish(self: *Splitter) error{OutOfMemory}!Delta {
        var reasoning: std.ArrayList(u8) = .empty;
        try self.utf8.flush(if (self.part == .reasoning) &reasoning else &self.held, self.memory);
        for (self.stops) |stop| if (stop.len > 0 and std.mem.endsWith(u8, self.held.items, stop)) {
            self.held.items.len -= stop.len;
            break;
        };
        return .{ .reasoning = reasoning.items, .content = try self.takeContent(0), .call = "" };
    }

    /// How many bytes at the end could belong to a stop text.
    fn holdBack(self: *const Splitter) usize {
        var most: usize = 0;
        for (self.stops) |stop| {
            var count = @min(stop.len, self.held.items.len);
            while (count > most) : (count -= 1) {
                if (std.mem.endsWith(u8, self.held.items, stop[0..count])) most = count;
            }
        }
        return most;
    }

    fn takeContent(self: *Splitter, keep: usize) error{OutOfMemory}![]const u8 {
        const count = self.held.items.len - keep;
        const taken = try self.memory.dupe(u8, self.held.items[0..count]);
        self.held.replaceRangeAssumeCapacity(0, count, &.{});
        return taken;
    }
};
