//! POST /v1/messages, whole and streamed.

const std = @import("std");
const api_chat = @import("api_chat.zig");
const layout = @import("layout.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const server = @import("server.zig");
const tools = @import("tools.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = server.Call;
const Failure = server.Failure;
const Value = std.json.Value;

pub fn handle(call: *Call) Failure!void {
    const object = try call.object();
    const request = Request.create(try call.identifier("msg_")) catch return error.OutOfMemory;
    defer request.release();
    request.ask = try read(call, object);
    if (try params.boolean(call, object, "stream") orelse false) return stream(call, request);
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    const got = try reply.whole();
    const figures = try usages.of(request, call.memory);
    try call.answer(200, .{
        .id = request.id,
        .type = "message",
        .role = "assistant",
        .model = call.server.name,
        .content = try blocks(call, got),
        .stop_reason = reason(got.finish),
        .stop_sequence = Value.null,
        .usage = usageOf(figures),
        .tensorfold = figures.tensorfold,
        .speculative = figures.speculative,
    });
}

fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var ask = try params.read(call, object, &.{"max_tokens"});
    if (object.get("thinking")) |switch_| if (switch_ == .object) {
        const kind = try params.string(call, switch_.object, "type") orelse "disabled";
        ask.thinking = std.mem.eql(u8, kind, "enabled");
        if (try params.integer(call, switch_.object, "budget_tokens")) |budget| ask.thinking_budget = budget;
    };
    var prompt = try prompts.Prompt.init(call.memory);
    const offer = try tools.offered(call, object);
    try tools.describe(call, &prompt, offer);
    if (object.get("system")) |system| try prompt.turn(layout.system, try prompts.contentText(call, &prompt, system));
    try prompts.addMessages(call, &prompt, object.get("messages") orelse return call.bad("messages is missing", .{}));
    if (try tools.chosen(call, object, offer, &prompt)) |tool| {
        ask.forced = try tools.forced(call, tool, prompt.question, ask.thinking);
    }
    try api_chat.finishPrompt(&ask, &prompt);
    return ask;
}

const Block = struct {
    type: []const u8,
    thinking: ?[]const u8 = null,
    signature: ?[]const u8 = null,
    text: ?[]const u8 = null,
    id: ?[]const u8 = null,
    name: ?[]const u8 = null,
    input: ?Value = null,
};

fn blocks(call: *Call, got: server.Reply.Whole) Failure![]const Block {
    var found: std.ArrayList(Block) = .empty;
    if (got.reasoning.len > 0) try found.append(call.memory, .{ .type = "thinking", .thinking = got.reasoning, .signature = "" });
    if (got.call.len > 0) {
        const split = api_chat.splitCall(got.call);
        const input = std.json.parseFromSliceLeaky(Value, call.memory, split.arguments, .{}) catch Value{ .object = .empty };
        try found.append(call.memory, .{ .type = "tool_use", .id = try call.identifier("toolu_"), .name = split.name, .input = input });
    } else try found.append(call.memory, .{ .type = "text", .text = got.content });
    return found.items;
}

fn reason(finish: request_.Finish) []const u8 {
    return switch (finish) {
        .stop => "end_turn",
        .length => "max_tokens",
        .tool_calls => "tool_use",
    };
}

const Usage = struct { input_tokens: usize, output_tokens: usize, cache_read_input_tokens: usize };

fn usageOf(figures: usages.Figures) Usage {
    const cached = figures.usage.prompt_tokens_details.cached_tokens;
    return .{
        .input_tokens = figures.usage.prompt_tokens - cached,
        .output_tokens = figures.usage.completion_tokens,
        .cache_read_input_tokens = cached,
    };
}

const BlockDelta = struct { type: []const u8, text: ?[]const u8 = null, thinking: ?[]const u8 = null, partial_json: ?[]const u8 = null };

/// Content blocks of a stream, one open at a time.
const Blocks = struct {
    call: *Call,
    index: usize = 0,
    open: ?[]const u8 = null,

    fn start(self: *Blocks, block: Block) Failure!void {
        try self.stop();
        self.open = block.type;
        try self.call.event("content_block_start", .{ .type = "content_block_start", .index = self.index, .content_block = block });
    }

    fn isOpen(self: *const Blocks, kind: []const u8) bool {
        return self.open != null and std.mem.eql(u8, self.open.?, kind);
    }

    fn delta(self: *Blocks, given: BlockDelta) Failure!void {
        try self.call.event("content_block_delta", .{ .type = "content_block_delta", .index = self.index, .delta = given });
    }

    fn stop(self: *Blocks) Failure!void {
        if (self.open == null) return;
        self.open = null;
        try self.call.event("content_block_stop", .{ .type = "content_block_stop", .index = self.index });
        self.index += 1;
    }
};

fn stream(call: *Call, request: *Request) Failure!void {
    try call.connection.beginStream();
    try call.event("message_start", .{ .type = "message_start", .message = .{
        .id = request.id,
        .type = "message",
        .role = "assistant",
        .model = call.server.name,
        .content = [0]u32{},
        .stop_reason = Value.null,
        .stop_sequence = Value.null,
        .usage = Usage{ .input_tokens = request.ask.prompt.len, .output_tokens = 0, .cache_read_input_tokens = 0 },
    } });
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    var open = Blocks{ .call = call };
    var called: std.ArrayList(u8) = .empty;
    const finish = while (true) {
        const step = try reply.next();
        if (step.delta.reasoning.len > 0) {
            if (!open.isOpen("thinking")) try open.start(.{ .type = "thinking", .thinking = "", .signature = "" });
            try open.delta(.{ .type = "thinking_delta", .thinking = step.delta.reasoning });
        }
        if (step.delta.content.len > 0) {
            if (!open.isOpen("text")) try open.start(.{ .type = "text", .text = "" });
            try open.delta(.{ .type = "text_delta", .text = step.delta.content });
        }
        try called.appendSlice(call.memory, step.delta.call);
        if (step.finish) |given| break given;
    };
    if (called.items.len > 0) {
        const split = api_chat.splitCall(called.items);
        const id = try call.identifier("toolu_");
        try open.start(.{ .type = "tool_use", .id = id, .name = split.name, .input = .{ .object = .empty } });
        try open.delta(.{ .type = "input_json_delta", .partial_json = split.arguments });
    }
    try open.stop();
    const usage = usageOf(try usages.of(request, call.memory));
    try call.event("message_delta", .{
        .type = "message_delta",
        .delta = .{ .stop_reason = reason(finish), .stop_sequence = Value.null },
        .usage = usage,
    });
    try call.event("message_stop", .{ .type = "message_stop" });
    try call.connection.endStream();
}
