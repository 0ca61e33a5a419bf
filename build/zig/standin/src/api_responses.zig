//! POST /v1/responses, whole and streamed.

const std = @import("std");
const api_chat = @import("api_chat.zig");
const layout = @import("layout.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const server = @import("server.zig");
const sys = @import("sys.zig");
const tools = @import("tools.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = server.Call;
const Failure = server.Failure;

pub fn handle(call: *Call) Failure!void {
    const object = try call.object();
    const request = Request.create(try call.identifier("resp_")) catch return error.OutOfMemory;
    defer request.release();
    request.ask = try read(call, object);
    if (try params.boolean(call, object, "stream") orelse false) return stream(call, request);
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    const got = try reply.whole();
    try call.answer(200, try finished(call, request, got));
}

fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var ask = try params.read(call, object, &.{"max_output_tokens"});
    var prompt = try prompts.Prompt.init(call.memory);
    const offer = try tools.offered(call, object);
    try tools.describe(call, &prompt, offer);
    if (try params.string(call, object, "instructions")) |given| try prompt.turn(layout.system, given);
    const input = object.get("input") orelse return call.bad("input is missing", .{});
    switch (input) {
        .string => |given| try prompt.turn(layout.user, given),
        .array => |items| for (items.items) |item| try addItem(call, &prompt, item),
        else => return call.bad("input has to be a string or a list of items", .{}),
    }
    if (try tools.chosen(call, object, offer, &prompt)) |tool| {
        ask.forced = try tools.forced(call, tool, prompt.question, ask.thinking);
    }
    try api_chat.finishPrompt(&ask, &prompt);
    return ask;
}

/// A message, an earlier call, or a tool's output.
fn addItem(call: *Call, prompt: *prompts.Prompt, item: std.json.Value) Failure!void {
    if (item != .object) return call.bad("an input item has to be an object", .{});
    if (item.object.contains("role")) {
        var one = std.json.Array.init(call.memory);
        try one.append(item);
        return prompts.addMessages(call, prompt, .{ .array = one });
    }
    if (try params.string(call, item.object, "output")) |output| return prompt.turn(layout.tool, output);
    if (try params.string(call, item.object, "arguments")) |given| return prompt.turn(layout.assistant, given);
}

const Text = struct { type: []const u8, text: []const u8, annotations: ?[]const u32 = null };
const Item = struct {
    type: []const u8,
    id: []const u8,
    status: ?[]const u8 = null,
    role: ?[]const u8 = null,
    content: ?[]const Text = null,
    summary: ?[]const Text = null,
    call_id: ?[]const u8 = null,
    name: ?[]const u8 = null,
    arguments: ?[]const u8 = null,
};

fn itemsOf(call: *Call, got: server.Reply.Whole) Failure![]const Item {
    var found: std.ArrayList(Item) = .empty;
    if (got.reasoning.len > 0) {
        const thought = try call.memory.dupe(Text, &.{.{ .type = "reasoning_text", .text = got.reasoning }});
        try found.append(call.memory, .{ .type = "reasoning", .id = try call.identifier("rs_"), .summary = &.{}, .content = thought });
    }
    if (got.call.len > 0) {
        const split = api_chat.splitCall(got.call);
        const name = try call.identifier("call_");
        try found.append(call.memory, .{
            .type = "function_call",
            .id = try call.identifier("fc_"),
            .status = "completed",
            .call_id = name,
            .name = split.name,
            .arguments = split.arguments,
        });
    } else {
        const content = try call.memory.dupe(Text, &.{.{ .type = "output_text", .text = got.content, .annotations = &.{} }});
        try found.append(call.memory, .{
            .type = "message",
            .id = try call.identifier("msg_"),
            .status = "completed",
            .role = "assistant",
            .content = content,
        });
    }
    return found.items;
}

const Usage = struct {
    input_tokens: usize,
    input_tokens_details: struct { cached_tokens: usize },
    output_tokens: usize,
    output_tokens_details: struct { reasoning_tokens: usize },
    total_tokens: usize,
};

const Response = struct {
    id: []const u8,
    object: []const u8 = "response",
    created_at: u64,
    status: []const u8,
    model: []const u8,
    output: []const Item,
    parallel_tool_calls: bool = false,
    tool_choice: []const u8 = "auto",
    tools: []const u32 = &.{},
    incomplete_details: ?struct { reason: []const u8 } = null,
    usage: ?Usage = null,
    tensorfold: ?usages.Engine = null,
    speculative: ?usages.Speculative = null,
};

fn begun(call: *Call, request: *Request) Response {
    return .{ .id = request.id, .created_at = sys.wallS(), .status = "in_progress", .model = call.server.name, .output = &.{} };
}

fn finished(call: *Call, request: *Request, got: server.Reply.Whole) Failure!Response {
    const figures = try usages.of(request, call.memory);
    var response = begun(call, request);
    response.status = if (got.finish == .length) "incomplete" else "completed";
    if (got.finish == .length) response.incomplete_details = .{ .reason = "max_output_tokens" };
    response.output = try itemsOf(call, got);
    response.tensorfold = figures.tensorfold;
    response.speculative = figures.speculative;
    response.usage = .{
        .input_tokens = figures.usage.prompt_tokens,
        .input_tokens_details = .{ .cached_tokens = figures.usage.prompt_tokens_details.cached_tokens },
        .output_tokens = figures.usage.completion_tokens,
        .output_tokens_details = .{ .reasoning_tokens = figures.usage.completion_tokens_details.reasoning_tokens },
        .total_tokens = figures.usage.total_tokens,
    };
    return response;
}

fn stream(call: *Call, request: *Request) Failure!void {
    try call.connection.beginStream();
    try call.event("response.created", .{ .type = "response.created", .sequence_number = 0, .response = begun(call, request) });
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    const item_id = try call.identifier("msg_");
    var parts: [3]std.ArrayList(u8) = @splat(.empty);
    var number: usize = 1;
    const finish = while (true) {
        const step = try reply.next();
        for (&parts, [_][]const u8{ step.delta.reasoning, step.delta.content, step.delta.call }) |*part, more| {
            try part.appendSlice(call.memory, more);
        }
        if (step.delta.content.len > 0) {
            const kind = "response.output_text.delta";
            try call.event(kind, .{ .type = kind, .sequence_number = number, .item_id = item_id, .output_index = 0, .content_index = 0, .delta = step.delta.content, .logprobs = [0]u32{} });
            number += 1;
        }
        if (step.finish) |given| break given;
    };
    const got = server.Reply.Whole{ .reasoning = parts[0].items, .content = parts[1].items, .call = parts[2].items, .finish = finish };
    const kind = if (finish == .length) "response.incomplete" else "response.completed";
    try call.event(kind, .{ .type = kind, .sequence_number = number, .response = try finished(call, request, got) });
    try call.connection.endStream();
}
