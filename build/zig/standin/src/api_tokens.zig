//! POST /tokenize and /detokenize.

const std = @import("std");
const fields = @import("fields.zig");
const params = @import("params.zig");
const prompts = @import("prompt.zig");
const text = @import("text.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

/// Text (`prompt`, `content` or `text`) or a chat (`messages`) as token ids.
pub fn tokenize(call: *Call) Failure!void {
    const object = try call.object();
    var built = prompts.Prompt{ .memory = call.memory };
    if (object.get("messages")) |messages| {
        built = try prompts.Prompt.init(call.memory);
        try prompts.addMessages(call, &built, messages);
        const ask = try params.read(call, object, &.{});
        _ = try built.open(ask.thinking);
    } else try built.bytes(try plainText(call, object));
    const tokens = built.tokens.items;
    try call.answer(200, .{ .tokens = tokens, .count = tokens.len, .max_model_len = call.server.context });
}

fn plainText(call: *Call, object: std.json.ObjectMap) Failure![]const u8 {
    for ([_][]const u8{ "prompt", "content", "text" }) |name| {
        if (try fields.string(call, object, name)) |given| return given;
    }
    return call.bad("prompt is missing", .{});
}

/// Token ids as text. Special tokens have none.
pub fn detokenize(call: *Call) Failure!void {
    const object = try call.object();
    const listed = object.get("tokens") orelse return call.bad("tokens is missing", .{});
    if (listed != .array) return call.bad("tokens has to be a list", .{});
    var out: std.ArrayList(u8) = .empty;
    var utf8 = text.Utf8{};
    for (try fields.tokens(call, listed.array.items)) |token| {
        if (token < 256) try utf8.push(@intCast(token), &out, call.memory);
    }
    try utf8.flush(&out, call.memory);
    try call.answer(200, .{ .prompt = out.items });
}
