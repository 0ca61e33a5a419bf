//! A request's sampling and length parameters out of its JSON.

const std = @import("std");
const linux = std.os.linux;
const fields = @import("fields.zig");
const request = @import("request.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Object = std.json.ObjectMap;

const efforts = [_]struct { name: []const u8, budget: ?usize }{
    .{ .name = "none", .budget = 0 },      .{ .name = "minimal", .budget = 64 }, .{ .name = "low", .budget = 256 },
    .{ .name = "medium", .budget = 1024 }, .{ .name = "high", .budget = 4096 },  .{ .name = "xhigh", .budget = 16384 },
    .{ .name = "max", .budget = null },
};

/// Everything but the prompt. `limits` names the fields that bound the reply, the first one given counts.
pub fn read(call: *Call, object: Object, limits: []const []const u8) Failure!request.Ask {
    const options = call.server.options;
    if (try fields.integer(call, object, "n")) |count| if (count != 1) return call.bad("n has to be 1", .{});
    var ask = request.Ask{
        .prompt = &.{},
        .max_tokens = 0,
        .min_tokens = try fields.integer(call, object, "min_tokens") orelse 0,
        .ignore_end = try fields.boolean(call, object, "ignore_eos") orelse false,
        .stops = try stops(call, object),
        .sampling = .{
            .temperature_milli = milli(try fields.real(call, object, "temperature", 100) orelse options.temperature),
            .top_p_milli = @max(1, milli(try fields.real(call, object, "top_p", 1) orelse options.top_p)),
            .top_k = @intCast(try fields.integer(call, object, "top_k") orelse options.top_k),
            .seed = try seed(call, object),
        },
    };
    for (limits) |name| if (try fields.integer(call, object, name)) |limit| {
        if (limit == 0) return call.bad("{s} has to be at least 1", .{name});
        ask.max_tokens = limit;
        break;
    };
    try thinking(call, object, &ask);
    return ask;
}

fn milli(value: f64) u32 {
    return @intFromFloat(@round(value * 1000));
}

fn seed(call: *Call, object: Object) Failure!u64 {
    if (object.get("seed")) |value| switch (value) {
        .null => {},
        .integer => |number| return @bitCast(number),
        else => return call.bad("seed has to be a whole number", .{}),
    };
    var bytes: [8]u8 = undefined;
    _ = linux.getrandom(&bytes, bytes.len, 0);
    return @bitCast(bytes);
}

fn stops(call: *Call, object: Object) Failure![]const []const u8 {
    const value = object.get("stop") orelse object.get("stop_sequences") orelse return &.{};
    var found: std.ArrayList([]const u8) = .empty;
    switch (value) {
        .null => {},
        .string => |stop| try found.append(call.memory, stop),
        .array => |list| for (list.items) |item| {
            if (item != .string) return call.bad("stop has to hold strings", .{});
            try found.append(call.memory, item.string);
        },
        else => return call.bad("stop has to be a string or a list of strings", .{}),
    }
    return found.items;
}

/// Thinking: the request's own switch, else its effort, else the server's setting.
fn thinking(call: *Call, object: Object, ask: *request.Ask) Failure!void {
    const options = call.server.options;
    const wished = try fields.string(call, object, "reasoning_effort") orelse try nested(call, object, "reasoning", "effort");
    ask.effort = wished orelse options.reasoning_effort;
    var budget: ?usize = null;
    for (efforts) |effort| {
        if (!std.mem.eql(u8, effort.name, ask.effort)) continue;
        budget = effort.budget;
        break;
    } else return call.bad("reasoning_effort '{s}' is not one of none, minimal, low, medium, high, xhigh, max", .{ask.effort});
    ask.thinking = if (wished != null) budget == null or budget.? > 0 else options.thinking;
    if (try templateSwitch(call, object)) |set| ask.thinking = set;
    ask.thinking_budget = try fields.integer(call, object, "thinking_budget") orelse options.thinking_budget orelse budget;
    if (ask.thinking_budget == 0) ask.thinking = false;
    if (!ask.thinking) ask.effort = "none";
}

fn nested(call: *Call, object: Object, outer: []const u8, inner: []const u8) Failure!?[]const u8 {
    const value = object.get(outer) orelse return null;
    return if (value == .object) fields.string(call, value.object, inner) else null;
}

fn templateSwitch(call: *Call, object: Object) Failure!?bool {
    const arguments = object.get("chat_template_kwargs") orelse return null;
    if (arguments == .null) return null;
    if (arguments != .object) return call.bad("chat_template_kwargs has to be an object", .{});
    return fields.boolean(call, arguments.object, "enable_thinking");
}
