//! POST /v1/chat/completions, whole and streamed.

const std = @import("std");
const layout = @import("layout.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const server = @import("server.zig");
const tools = @import("tools.zig");
const usages = @import("usage.zig");
const sys = @import("sys.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = server.Call;
const Failure = server.Failure;

const Function = struct { name: ?[]const u8 = null, arguments: []const u8 };
const ToolCall = struct { index: ?usize = null, id: ?[]const u8 = null, type: ?[]const u8 = null, function: Function };
const Delta = struct {
    role: ?[]const u8 = null,
    content: ?[]const u8 = null,
    reasoning_content: ?[]const u8 = null,
    tool_calls: ?[]const ToolCall = null,
};

pub fn handle(call: *Call) Failure!void {
    const object = try call.object();
    const wants_stream = try params.boolean(call, object, "stream") orelse false;
    const request = Request.create(try call.identifier("chatcmpl-")) catch return error.OutOfMemory;
    defer request.release();
    request.ask = try read(call, object);
    if (wants_stream) return stream(call, request, object);
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    try whole(call, request);
}

fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var ask = try params.read(call, object, &.{ "max_completion_tokens", "max_tokens" });
    var prompt = try prompts.Prompt.init(call.memory);
    const offer = try tools.offered(call, object);
    try tools.describe(call, &prompt, offer);
    try prompts.addMessages(call, &prompt, object.get("messages") orelse return call.bad("messages is missing", .{}));
    if (try tools.chosen(call, object, offer, &prompt)) |tool| {
        ask.forced = try tools.forced(call, tool, prompt.question, ask.thinking);
    }
    try finishPrompt(&ask, &prompt);
    return ask;
}

/// Open the reply and hand the prompt over.
pub fn finishPrompt(ask: *request_.Ask, prompt: *prompts.Prompt) error{OutOfMemory}!void {
    ask.assistant_at = try prompt.open(ask.thinking);
    ask.prompt = prompt.tokens.items;
    ask.topic = prompt.topic();
    ask.image_seed = prompt.image_seed;
}

fn whole(call: *Call, request: *Request) Failure!void {
    var reply = server.Reply.init(call, request);
    const got = try reply.whole();
    const figures = try usages.of(request, call.memory);
    const split = splitCall(got.call);
    const calls = [_]ToolCall{.{ .id = try call.identifier("call_"), .type = "function", .function = .{ .name = split.name, .arguments = split.arguments } }};
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

/// "NAME, line end, ARGUMENTS" apart.
pub fn splitCall(text: []const u8) struct { name: []const u8, arguments: []const u8 } {
    const at = std.mem.indexOfScalar(u8, text, '\n') orelse return .{ .name = text, .arguments = "" };
    return .{ .name = text[0..at], .arguments = text[at + 1 ..] };
}

const Chunker = struct {
    call: *Call,
    request: *Request,
    created: u64,
    call_text: std.ArrayList(u8) = .empty,
    named: bool = false,

    fn send(self: *Chunker, delta: Delta, finish: ?request_.Finish) Failure!void {
        try self.sendWith(delta, finish, null);
    }

    fn sendWith(self: *Chunker, delta: Delta, finish: ?request_.Finish, figures: ?usages.Figures) Failure!void {
        // A JSON value, not an optional: clients want the field even while it is null.
        const reason: std.json.Value = if (finish) |given| .{ .string = @tagName(given) } else .null;
        try self.call.event(null, .{
            .id = self.request.id,
            .object = "chat.completion.chunk",
            .created = self.created,
            .model = self.call.server.name,
            .choices = .{.{ .index = 0, .delta = delta, .finish_reason = reason }},
            .usage = if (figures) |given| @as(?usages.Usage, given.usage) else null,
            .tensorfold = if (figures) |given| @as(?usages.Engine, given.tensorfold) else null,
            .speculative = if (figures) |given| @as(?usages.Speculative, given.speculative) else null,
        });
    }

    /// A chunk with figures and no choice, for clients that ask for the usage.
    fn usage(self: *Chunker, figures: usages.Figures) Failure!void {
        try self.call.event(null, .{
            .id = self.request.id,
            .object = "chat.completion.chunk",
            .created = self.created,
            .model = self.call.server.name,
            .choices = [0]struct {}{},
            .usage = figures.usage,
            .tensorfold = figures.tensorfold,
            .speculative = figures.speculative,
        });
    }

    /// Stream a tool call: its name in the first delta, then its arguments as they come.
    fn tool(self: *Chunker, more: []const u8) Failure!void {
        try self.call_text.appendSlice(self.call.memory, more);
        if (std.mem.indexOfScalar(u8, self.call_text.items, '\n') == null) return;
        const split = splitCall(self.call_text.items);
        const fresh = if (self.named) more else split.arguments;
        if (!self.named) {
            self.named = true;
            const first = ToolCall{ .index = 0, .id = try self.call.identifier("call_"), .type = "function", .function = .{ .name = split.name, .arguments = "" } };
            try self.send(.{ .tool_calls = &.{first} }, null);
        }
        if (fresh.len > 0) try self.send(.{ .tool_calls = &.{.{ .index = 0, .function = .{ .arguments = fresh } }} }, null);
    }
};

fn stream(call: *Call, request: *Request, object: std.json.ObjectMap) Failure!void {
    const separate = try separateUsage(call, object);
    var chunker = Chunker{ .call = call, .request = request, .created = sys.wallS() };
    try call.connection.beginStream();
    try chunker.send(.{ .role = "assistant" }, null);
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    const finish = while (true) {
        const step = try reply.next();
        if (step.delta.reasoning.len > 0) try chunker.send(.{ .reasoning_content = step.delta.reasoning }, null);
        if (step.delta.content.len > 0) try chunker.send(.{ .content = step.delta.content }, null);
        if (step.delta.call.len > 0) try chunker.tool(step.delta.call);
        if (step.finish) |finish| break finish;
    };
    const figures = try usages.of(request, call.memory);
    try chunker.sendWith(.{}, finish, if (separate) null else figures);
    if (separate) try chunker.usage(figures);
    try call.connection.chunk("data: [DONE]\n\n");
    try call.connection.endStream();
}

fn separateUsage(call: *Call, object: std.json.ObjectMap) Failure!bool {
    const options = object.get("stream_options") orelse return false;
    return if (options == .object) try params.boolean(call, options.object, "include_usage") orelse false else false;
}
