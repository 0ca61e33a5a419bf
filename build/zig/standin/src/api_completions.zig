//! POST /v1/completions, /tokenize and /detokenize: text without the form of a chat.

const std = @import("std");
const layout = @import("layout.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const server = @import("server.zig");
const sys = @import("sys.zig");
const text = @import("text.zig");
const usages = @import("usage.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = server.Call;
const Failure = server.Failure;
const Token = layout.Token;

pub fn completions(call: *Call) Failure!void {
    const object = try call.object();
    const request = Request.create(try call.identifier("cmpl-")) catch return error.OutOfMemory;
    defer request.release();
    request.ask = try params.read(call, object, &.{"max_tokens"});
    request.ask.thinking = false;
    request.ask.effort = "none";
    request.ask.prompt = try promptTokens(call, object.get("prompt") orelse return call.bad("prompt is missing", .{}));
    if (try params.boolean(call, object, "stream") orelse false) return stream(call, request);
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    const got = try reply.whole();
    const figures = try usages.of(request, call.memory);
    try call.answer(200, .{
        .id = request.id,
        .object = "text_completion",
        .created = sys.wallS(),
        .model = call.server.name,
        .choices = .{.{ .index = 0, .text = got.content, .logprobs = std.json.Value.null, .finish_reason = got.finish }},
        .usage = figures.usage,
        .tensorfold = figures.tensorfold,
        .speculative = figures.speculative,
    });
}

/// A prompt as a string or as a list of token ids.
fn promptTokens(call: *Call, prompt: std.json.Value) Failure![]const Token {
    var built = try prompts.Prompt.init(call.memory);
    switch (prompt) {
        .string => |given| try built.bytes(given),
        .array => |list| {
            if (list.items.len == 1 and list.items[0] == .string) {
                try built.bytes(list.items[0].string);
            } else try built.tokens.appendSlice(call.memory, try tokenIds(call, list.items));
        },
        else => return call.bad("prompt has to be a string or a list of token ids", .{}),
    }
    return built.tokens.items;
}

fn tokenIds(call: *Call, values: []const std.json.Value) Failure![]const Token {
    const tokens = try call.memory.alloc(Token, values.len);
    for (values, tokens) |value, *token| {
        if (value != .integer or value.integer < 0 or value.integer >= layout.vocab) {
            return call.bad("token ids have to be whole numbers from 0 to {d}", .{layout.vocab - 1});
        }
        token.* = @intCast(value.integer);
    }
    return tokens;
}

fn stream(call: *Call, request: *Request) Failure!void {
    try call.connection.beginStream();
    try params.limitReply(call, &request.ask);
    try call.submit(request);
    var reply = server.Reply.init(call, request);
    while (true) {
        const step = try reply.next();
        if (step.delta.content.len > 0) try chunk(call, request, step.delta.content, .null, null);
        const finish = step.finish orelse continue;
        try chunk(call, request, "", .{ .string = @tagName(finish) }, (try usages.of(request, call.memory)).usage);
        break;
    }
    try call.connection.chunk("data: [DONE]\n\n");
    try call.connection.endStream();
}

fn chunk(call: *Call, request: *Request, more: []const u8, reason: std.json.Value, usage: ?usages.Usage) Failure!void {
    try call.event(null, .{
        .id = request.id,
        .object = "text_completion",
        .created = sys.wallS(),
        .model = call.server.name,
        .choices = .{.{ .index = 0, .text = more, .finish_reason = reason }},
        .usage = usage,
    });
}

/// Text (`prompt`, `content` or `text`) or a chat (`messages`) as token ids.
pub fn tokenize(call: *Call) Failure!void {
    const object = try call.object();
    var built = prompts.Prompt{ .memory = call.memory };
    if (object.get("messages")) |messages| {
        built = try prompts.Prompt.init(call.memory);
        try prompts.addMessages(call, &built, messages);
        const ask = try params.read(call, object, &.{});
        _ = try built.open(ask.thinking);
    } else {
        const given = try params.string(call, object, "prompt") orelse try params.string(call, object, "content") orelse
            try params.string(call, object, "text") orelse return call.bad("prompt is missing", .{});
        try built.bytes(given);
    }
    const tokens = built.tokens.items;
    try call.answer(200, .{ .tokens = tokens, .count = tokens.len, .max_model_len = call.server.context });
}

/// Token ids as text. Special tokens have none.
pub fn detokenize(call: *Call) Failure!void {
    const object = try call.object();
    const listed = object.get("tokens") orelse return call.bad("tokens is missing", .{});
    if (listed != .array) return call.bad("tokens has to be a list", .{});
    var out: std.ArrayList(u8) = .empty;
    var utf8 = text.Utf8{};
    for (try tokenIds(call, listed.array.items)) |token| {
        if (token < 256) try utf8.push(@intCast(token), &out, call.memory);
    }
    try utf8.flush(&out, call.memory);
    try call.answer(200, .{ .prompt = out.items });
}
