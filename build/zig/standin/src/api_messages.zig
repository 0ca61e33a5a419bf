//! POST /v1/messages, whole and streamed.

const std = @import("std");
const fields = @import("fields.zig");
const generation = @import("generation.zig");
const layout = @import("layout.zig");
const prompts = @import("prompt.zig");
const replies = @import("reply.zig");
const text = @import("text.zig");
const tools = @import("tools.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = @import("call.zig").Call;
const Conversation = @import("conversation.zig").Conversation;
const Failure = @import("call.zig").Failure;
const nothing = @import("call.zig").nothing;
const Value = std.json.Value;

pub const id_prefix = "msg_";

pub fn handle(call: *Call) Failure!void {
    return generation.serve(call, @This());
}

pub fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var conversation = try Conversation.begin(call, object, &.{"max_tokens"});
    if (object.get("thinking")) |given| if (given == .object) {
        const kind = try fields.string(call, given.object, "type") orelse "disabled";
        conversation.ask.thinking = std.mem.eql(u8, kind, "enabled");
        if (try fields.integer(call, given.object, "budget_tokens")) |budget| conversation.ask.thinking_budget = budget;
    };
    if (object.get("system")) |system| {
        try conversation.prompt.turn(layout.system, try prompts.contentText(call, &conversation.prompt, system));
    }
    try conversation.addMessages();
    return conversation.end();
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

pub fn answer(call: *Call, request: *Request, got: replies.Whole) Failure!void {
    const figures = try usages.of(request, call.memory);
    try call.answer(200, .{
        .id = request.id,
        .type = "message",
        .role = "assistant",
        .model = call.server.name,
        .content = try blocksOf(call, got),
        .stop_reason = reason(got.finish),
        .stop_sequence = nothing,
        .usage = usageOf(figures),
        .tensorfold = figures.tensorfold,
        .speculative = figures.speculative,
    });
}

fn blocksOf(call: *Call, got: replies.Whole) Failure![]const Block {
    const memory = call.memory;
    var found: std.ArrayList(Block) = .empty;
    if (got.reasoning.len > 0) try found.append(memory, .{ .type = "thinking", .thinking = got.reasoning, .signature = "" });
    if (got.call.len > 0) {
        const split = tools.split(got.call);
        const input = std.json.parseFromSliceLeaky(Value, memory, split.arguments, .{}) catch Value{ .object = .empty };
        try found.append(memory, try toolUse(call, split.name, input));
    } else try found.append(memory, .{ .type = "text", .text = got.content });
    return found.items;
}

fn toolUse(call: *Call, name: []const u8, input: Value) Failure!Block {
    return .{ .type = "tool_use", .id = try call.identifier("toolu_"), .name = name, .input = input };
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

const BlockDelta = struct {
    type: []const u8,
    text: ?[]const u8 = null,
    thinking: ?[]const u8 = null,
    partial_json: ?[]const u8 = null,
};

/// A stream of content blocks, one open at a time. A tool call goes out at the end, as one block.
pub const Events = struct {
    call: *Call,
    request: *Request,
    index: usize = 0,
    /// The type of the open block.
    open: ?[]const u8 = null,
    call_text: std.ArrayList(u8) = .empty,

    pub fn init(call: *Call, request: *Request, _: std.json.ObjectMap) Failure!Events {
        return .{ .call = call, .request = request };
    }

    pub fn begin(self: *Events) Failure!void {
        const message = .{
            .id = self.request.id,
            .type = "message",
            .role = "assistant",
            .model = self.call.server.name,
            .content = [0]u32{},
            .stop_reason = nothing,
            .stop_sequence = nothing,
            .usage = Usage{ .input_tokens = self.request.ask.prompt.len, .output_tokens = 0, .cache_read_input_tokens = 0 },
        };
        try self.call.event("message_start", .{ .type = "message_start", .message = message });
    }

    pub fn add(self: *Events, delta: text.Delta) Failure!void {
        if (delta.reasoning.len > 0) {
            try self.keepOpen(.{ .type = "thinking", .thinking = "", .signature = "" });
            try self.addToBlock(.{ .type = "thinking_delta", .thinking = delta.reasoning });
        }
        if (delta.content.len > 0) {
            try self.keepOpen(.{ .type = "text", .text = "" });
            try self.addToBlock(.{ .type = "text_delta", .text = delta.content });
        }
        try self.call_text.appendSlice(self.call.memory, delta.call);
    }

    pub fn end(self: *Events, finish: request_.Finish) Failure!void {
        if (self.call_text.items.len > 0) {
            const split = tools.split(self.call_text.items);
            try self.keepOpen(try toolUse(self.call, split.name, .{ .object = .empty }));
            try self.addToBlock(.{ .type = "input_json_delta", .partial_json = split.arguments });
        }
        try self.closeBlock();
        try self.call.event("message_delta", .{
            .type = "message_delta",
            .delta = .{ .stop_reason = reason(finish), .stop_sequence = nothing },
            .usage = usageOf(try usages.of(self.request, self.call.memory)),
        });
        try self.call.event("message_stop", .{ .type = "message_stop" });
    }

    /// See that a block of this one's type is open.
    fn keepOpen(self: *Events, block: Block) Failure!void {
        if (self.open) |open| if (std.mem.eql(u8, open, block.type)) return;
        try self.closeBlock();
        self.open = block.type;
        const kind = "content_block_start";
        try self.call.event(kind, .{ .type = kind, .index = self.index, .content_block = block });
    }

    fn addToBlock(self: *Events, delta: BlockDelta) Failure!void {
        const kind = "content_block_delta";
        try self.call.event(kind, .{ .type = kind, .index = self.index, .delta = delta });
    }

    fn closeBlock(self: *Events) Failure!void {
        if (self.open == null) return;
        self.open = null;
        const kind = "content_block_stop";
        try self.call.event(kind, .{ .type = kind, .index = self.index });
        self.index += 1;
    }
};
