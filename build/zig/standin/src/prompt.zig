//! Conversations as token sequences, in the form of the checkpoint's chat template.

const std = @import("std");
const layout = @import("layout.zig");
const topics = @import("topic.zig");
const images = @import("image.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Token = layout.Token;

pub const Prompt = struct {
    memory: std.mem.Allocator,
    tokens: std.ArrayList(Token) = .empty,
    /// The last user turn's text: what the reply is about.
    question: []const u8 = "",
    last_role: Token = layout.begin,
    image_seed: u64 = 0,

    pub fn init(memory: std.mem.Allocator) error{OutOfMemory}!Prompt {
        var prompt = Prompt{ .memory = memory };
        try prompt.tokens.append(memory, layout.begin);
        return prompt;
    }

    pub fn bytes(self: *Prompt, text: []const u8) error{OutOfMemory}!void {
        for (try self.tokens.addManyAsSlice(self.memory, text.len), text) |*token, byte| token.* = byte;
    }

    pub fn turn(self: *Prompt, role: Token, text: []const u8) error{OutOfMemory}!void {
        try self.tokens.append(self.memory, role);
        if (role == layout.assistant) try self.tokens.append(self.memory, layout.end_think);
        try self.bytes(text);
        try self.tokens.append(self.memory, layout.end);
        if (role == layout.user) self.question = text;
        self.last_role = role;
    }

    /// Place an image before the text of the turn that follows.
    pub fn image(self: *Prompt, found: images.Image) error{OutOfMemory}!void {
        try self.tokens.appendNTimes(self.memory, layout.image, found.tokens);
        self.image_seed = found.digest ^ self.image_seed *% 31;
    }

    /// Open the reply; where its assistant token stands.
    pub fn open(self: *Prompt, thinking: bool) error{OutOfMemory}!usize {
        const at = self.tokens.items.len;
        try self.tokens.append(self.memory, layout.assistant);
        try self.tokens.append(self.memory, if (thinking) layout.think else layout.end_think);
        return at;
    }

    pub fn topic(self: *const Prompt) u64 {
        return topics.of(self.question);
    }
};

fn roleToken(role: []const u8) ?Token {
    const roles = .{
        .{ "system", layout.system },       .{ "developer", layout.system }, .{ "user", layout.user },
        .{ "assistant", layout.assistant }, .{ "tool", layout.tool },
    };
    inline for (roles) |entry| if (std.mem.eql(u8, role, entry[0])) return entry[1];
    return null;
}

/// Add a chat's messages.
pub fn addMessages(call: *Call, prompt: *Prompt, messages: std.json.Value) Failure!void {
    if (messages != .array or messages.array.items.len == 0) {
        return call.bad("messages has to be a list with at least one message", .{});
    }
    for (messages.array.items) |message| {
        if (message != .object) return call.bad("a message has to be an object", .{});
        const role = message.object.get("role") orelse return call.bad("a message lacks its role", .{});
        const token = if (role == .string) roleToken(role.string) else null;
        if (token == null) return call.bad("a message's role has to be system, user, assistant or tool", .{});
        const content = message.object.get("content") orelse std.json.Value.null;
        const own = try contentText(call, prompt, content);
        const calls = try toolCalls(call, message.object);
        try prompt.turn(token.?, if (calls.len == 0) own else try std.mem.concat(call.memory, u8, &.{ own, calls }));
    }
}

/// A content field as text: a string, nothing, or a list of parts. Images among the parts go into the prompt at once.
pub fn contentText(call: *Call, prompt: *Prompt, content: std.json.Value) Failure![]const u8 {
    switch (content) {
        .null => return "",
        .string => |given| return given,
        .array => {},
        else => return call.bad("a message's content has to be a string or a list of parts", .{}),
    }
    var text: std.ArrayList(u8) = .empty;
    var marks: std.ArrayList(u8) = .empty;
    for (content.array.items) |part| {
        if (part != .object) return call.bad("a part of a message has to be an object", .{});
        if (part.object.get("text")) |given| if (given == .string) {
            try text.appendSlice(call.memory, given.string);
            continue;
        };
        const found = try images.fromPart(call, part.object);
        try prompt.image(found);
        try marks.print(call.memory, "[{s} image] ", .{found.colour});
    }
    return std.mem.concat(call.memory, u8, &.{ marks.items, text.items });
}

/// An assistant message's earlier tool calls, in the form the model writes them.
fn toolCalls(call: *Call, message: std.json.ObjectMap) Failure![]const u8 {
    const calls = message.get("tool_calls") orelse return "";
    if (calls != .array) return "";
    var text: std.ArrayList(u8) = .empty;
    for (calls.array.items) |entry| {
        if (entry != .object) continue;
        const function = entry.object.get("function") orelse continue;
        if (function != .object) continue;
        try text.print(call.memory, "{f}", .{std.json.fmt(function, .{})});
    }
    return text.items;
}
