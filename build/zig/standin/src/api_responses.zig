//! POST /v1/responses, whole and streamed.

const std = @import("std");
const fields = @import("fields.zig");
const generation = @import("generation.zig");
const layout = @import("layout.zig");
const prompts = @import("prompt.zig");
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

pub const id_prefix = "resp_";

pub fn handle(call: *Call) Failure!void {
    return generation.serve(call, @This());
}

pub fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var conversation = try Conversation.begin(call, object, &.{"max_output_tokens"});
    const prompt = &conversation.prompt;
    if (try fields.string(call, object, "instructions")) |given| try prompt.turn(layout.system, given);
    const input = object.get("input") orelse return call.bad("input is missing", .{});
    switch (input) {
        .string => |given| try prompt.turn(layout.user, given),
        .array => |items| for (items.items) |item| try addItem(call, prompt, item),
        else => return call.bad("input has to be a string or a list of items", .{}),
    }
    return conversation.end();
}

/// A message, an earlier call, or a tool's output.
fn addItem(call: *Call, prompt: *prompts.Prompt, item: std.json.Value) Failure!void {
    if (item != .object) return call.bad("an input item has to be an object", .{});
    if (item.object.contains("role")) {
        var one = std.json.Array.init(call.memory);
        try one.append(item);
        return prompts.addMessages(call, prompt, .{ .array = one });
    }
    if (try fields.string(call, item.object, "output")) |output| return prompt.turn(layout.tool, output);
    if (try fields.string(call, item.object, "arguments")) |given| return prompt.turn(layout.assistant, given);
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

fn itemsOf(call: *Call, got: replies.Whole) Failure![]const Item {
    var found: std.ArrayList(Item) = .empty;
    if (got.reasoning.len > 0) {
        const thought = try call.memory.dupe(Text, &.{.{ .type = "reasoning_text", .text = got.reasoning }});
        const id = try call.identifier("rs_");
        try found.append(call.memory, .{ .type = "reasoning", .id = id, .summary = &.{}, .content = thought });
    }
    if (got.call.len > 0) {
        const split = tools.split(got.call);
        try found.append(call.memory, .{
            .type = "function_call",
            .id = try call.identifier("fc_"),
            .status = "completed",
            .call_id = try call.identifier("call_"),
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
    const now_s = sys.wallS();
    return .{ .id = request.id, .created_at = now_s, .status = "in_progress", .model = call.server.name, .output = &.{} };
}

fn finished(call: *Call, request: *Request, got: replies.Whole) Failure!Response {
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

pub fn answer(call: *Call, request: *Request, got: replies.Whole) Failure!void {
    try call.answer(200, try finished(call, request, got));
}

/// A stream of numbered events: the response as it begins, the answer's text as it comes, the response as it ended.
pub const Events = struct {
    call: *Call,
    request: *Request,
    item_id: []const u8,
    number: usize = 0,
    parts: replies.Parts = .{},

    pub fn init(call: *Call, request: *Request, _: std.json.ObjectMap) Failure!Events {
        return .{ .call = call, .request = request, .item_id = try call.identifier("msg_") };
    }

    pub fn begin(self: *Events) Failure!void {
        const kind = "response.created";
        const response = begun(self.call, self.request);
        try self.call.event(kind, .{ .type = kind, .sequence_number = self.next(), .response = response });
    }

    pub fn add(self: *Events, delta: text.Delta) Failure!void {
        try self.parts.add(self.call.memory, delta);
        if (delta.content.len == 0) return;
        const kind = "response.output_text.delta";
        try self.call.event(kind, .{
            .type = kind,
            .sequence_number = self.next(),
            .item_id = self.item_id,
            .output_index = 0,
            .content_index = 0,
            .delta = delta.content,
            .logprobs = [0]u32{},
        });
    }

    pub fn end(self: *Events, finish: request_.Finish) Failure!void {
        const kind = if (finish == .length) "response.incomplete" else "response.completed";
        const response = try finished(self.call, self.request, self.parts.whole(finish));
        try self.call.event(kind, .{ .type = kind, .sequence_number = self.next(), .response = response });
    }

    fn next(self: *Events) usize {
        defer self.number += 1;
        return self.number;
    }
};
