//! POST /v1/completions, whole and streamed: text that goes on, without the form of a chat.

const std = @import("std");
const fields = @import("fields.zig");
const generation = @import("generation.zig");
const layout = @import("layout.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const replies = @import("reply.zig");
const sys = @import("sys.zig");
const text = @import("text.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const nothing = @import("call.zig").nothing;

pub const id_prefix = "cmpl-";

pub fn handle(call: *Call) Failure!void {
    return generation.serve(call, @This());
}

pub fn read(call: *Call, object: std.json.ObjectMap) Failure!request_.Ask {
    var ask = try params.read(call, object, &.{"max_tokens"});
    ask.thinking = false;
    ask.effort = "none";
    ask.prompt = try promptTokens(call, object.get("prompt") orelse return call.bad("prompt is missing", .{}));
    return ask;
}

/// A prompt as a string, as a list of one string, or as a list of token ids.
fn promptTokens(call: *Call, prompt: std.json.Value) Failure![]const layout.Token {
    var built = try prompts.Prompt.init(call.memory);
    switch (prompt) {
        .string => |given| try built.bytes(given),
        .array => |list| {
            if (list.items.len == 1 and list.items[0] == .string) {
                try built.bytes(list.items[0].string);
            } else try built.tokens.appendSlice(call.memory, try fields.tokens(call, list.items));
        },
        else => return call.bad("prompt has to be a string or a list of token ids", .{}),
    }
    return built.tokens.items;
}

pub fn answer(call: *Call, request: *Request, got: replies.Whole) Failure!void {
    const figures = try usages.of(request, call.memory);
    try call.answer(200, .{
        .id = request.id,
        .object = "text_completion",
        .created = sys.wallS(),
        .model = call.server.name,
        .choices = .{.{ .index = 0, .text = got.content, .logprobs = nothing, .finish_reason = got.finish }},
        .usage = figures.usage,
        .tensorfold = figures.tensorfold,
        .speculative = figures.speculative,
    });
}

pub const Events = struct {
    call: *Call,
    request: *Request,

    pub fn init(call: *Call, request: *Request, _: std.json.ObjectMap) Failure!Events {
        return .{ .call = call, .request = request };
    }

    pub fn begin(_: *Events) Failure!void {}

    pub fn add(self: *Events, delta: text.Delta) Failure!void {
        if (delta.content.len > 0) try self.chunk(delta.content, .null, null);
    }

    pub fn end(self: *Events, finish: request_.Finish) Failure!void {
        const figures = try usages.of(self.request, self.call.memory);
        try self.chunk("", .{ .string = @tagName(finish) }, figures.usage);
        try self.call.done();
    }

    fn chunk(self: *Events, more: []const u8, reason: std.json.Value, usage: ?usages.Usage) Failure!void {
        try self.call.event(null, .{
            .id = self.request.id,
            .object = "text_completion",
            .created = sys.wallS(),
            .model = self.call.server.name,
            .choices = .{.{ .index = 0, .text = more, .finish_reason = reason }},
            .usage = usage,
        });
    }
};
