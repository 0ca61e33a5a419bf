//! POST /v1/chat/completions, whole and streamed.

const std = @import("std");
const fields = @import("fields.zig");
const generation = @import("generation.zig");
const replies = @import("reply.zig");
const sys = @import("sys.zig");
const text = @import("text.zig");
const tools = @import("tools.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = @import("call.zig").Call;
const Conversation = @import("conversation.zig").Conversation;
const Failure = @import("call.zig").Failure;
const nothing = @import("call.zig").nothing;

pub const id_prefix = "chatcmpl-";

pub fn handle(call: *Call) Failure!void {
    return generation.serve(call, @This());
}

pub fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var conversation = try Conversation.begin(call, object, &.{ "max_completion_tokens", "max_tokens" });
    try conversation.addMessages();
    return conversation.end();
}

const Function = struct { name: ?[]const u8 = null, arguments: []const u8 };
const ToolCall = struct { index: ?usize = null, id: ?[]const u8 = null, type: ?[]const u8 = null, function: Function };

pub fn answer(call: *Call, request: *Request, got: replies.Whole) Failure!void {
    const figures = try usages.of(request, call.memory);
    const split = tools.split(got.call);
    const function = Function{ .name = split.name, .arguments = split.arguments };
    const calls = [_]ToolCall{.{ .id = try call.identifier("call_"), .type = "function", .function = function }};
    const message = .{
        .role = "assistant",
        .content = got.content,
        .reasoning_content = if (got.reasoning.len > 0) got.reasoning else null,
        .tool_calls = if (got.call.len > 0) @as(?[]const ToolCall, &calls) else null,
    };
    try call.answer(200, .{
        .id = request.id,
        .object = "chat.completion",
        .created = sys.wallS(),
        .model = call.server.name,
        .choices = .{.{ .index = 0, .message = message, .finish_reason = got.finish }},
        .usage = figures.usage,
        .tensorfold = figures.tensorfold,
        .speculative = figures.speculative,
    });
}

const Delta = struct {
    role: ?[]const u8 = null,
    content: ?[]const u8 = null,
    reasoning_content: ?[]const u8 = null,
    tool_calls: ?[]const ToolCall = null,
};

pub const Events = struct {
    call: *Call,
    request: *Request,
    created_s: u64,
    /// Whether the figures come in a chunk of their own.
    separate_usage: bool,
    call_text: std.ArrayList(u8) = .empty,
    named: bool = false,

    pub fn init(call: *Call, request: *Request, object: std.json.ObjectMap) Failure!Events {
        const separate = try separateUsage(call, object);
        return .{ .call = call, .request = request, .created_s = sys.wallS(), .separate_usage = separate };
    }

    pub fn begin(self: *Events) Failure!void {
        try self.send(.{ .role = "assistant" });
    }

    pub fn add(self: *Events, delta: text.Delta) Failure!void {
        if (delta.reasoning.len > 0) try self.send(.{ .reasoning_content = delta.reasoning });
        if (delta.content.len > 0) try self.send(.{ .content = delta.content });
        if (delta.call.len > 0) try self.addCall(delta.call);
    }

    pub fn end(self: *Events, finish: request_.Finish) Failure!void {
        const figures = try usages.of(self.request, self.call.memory);
        const reason = std.json.Value{ .string = @tagName(finish) };
        const choices = .{.{ .index = 0, .delta = Delta{}, .finish_reason = reason }};
        try self.chunk(choices, if (self.separate_usage) null else figures);
        if (self.separate_usage) try self.chunk([0]struct {}{}, figures);
        try self.call.done();
    }

    /// A tool call: its name in the first delta, then its arguments as they come.
    fn addCall(self: *Events, more: []const u8) Failure!void {
        try self.call_text.appendSlice(self.call.memory, more);
        if (std.mem.indexOfScalar(u8, self.call_text.items, '\n') == null) return;
        const split = tools.split(self.call_text.items);
        const fresh = if (self.named) more else split.arguments;
        if (!self.named) {
            self.named = true;
            const function = Function{ .name = split.name, .arguments = "" };
            const id = try self.call.identifier("call_");
            const first = ToolCall{ .index = 0, .id = id, .type = "function", .function = function };
            try self.send(.{ .tool_calls = &.{first} });
        }
        if (fresh.len > 0) try self.send(.{ .tool_calls = &.{.{ .index = 0, .function = .{ .arguments = fresh } }} });
    }

    fn send(self: *Events, delta: Delta) Failure!void {
        try self.chunk(.{.{ .index = 0, .delta = delta, .finish_reason = nothing }}, null);
    }

    fn chunk(self: *Events, choices: anytype, figures: ?usages.Figures) Failure!void {
        try self.call.event(null, .{
            .id = self.request.id,
            .object = "chat.completion.chunk",
            .created = self.created_s,
            .model = self.call.server.name,
            .choices = choices,
            .usage = if (figures) |given| @as(?usages.Usage, given.usage) else null,
            .tensorfold = if (figures) |given| @as(?usages.Engine, given.tensorfold) else null,
            .speculative = if (figures) |given| @as(?usages.Speculative, given.speculative) else null,
        });
    }
};

fn separateUsage(call: *Call, object: std.json.ObjectMap) Failure!bool {
    const options = object.get("stream_options") orelse return false;
    return if (options == .object) try fields.boolean(call, options.object, "include_usage") orelse false else false;
}
