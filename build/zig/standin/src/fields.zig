//! Fields of a request's JSON object by type: null where one is missing or null, a refusal where it has another type.

const std = @import("std");
const layout = @import("layout.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Object = std.json.ObjectMap;

/// A whole number of 32 bits.
pub fn integer(call: *Call, object: Object, name: []const u8) Failure!?usize {
    const value = object.get(name) orelse return null;
    return switch (value) {
        .null => null,
        .integer => |number| std.math.cast(u32, number) orelse call.bad("{s} is out of range", .{name}),
        else => call.bad("{s} has to be a whole number", .{name}),
    };
}

/// A number from 0 to `most`.
pub fn real(call: *Call, object: Object, name: []const u8, most: f64) Failure!?f64 {
    const value = object.get(name) orelse return null;
    const number: f64 = switch (value) {
        .null => return null,
        .integer => |whole| @floatFromInt(whole),
        .float => |float| float,
        else => return call.bad("{s} has to be a number", .{name}),
    };
    if (!(number >= 0 and number <= most)) return call.bad("{s} has to be from 0 to {d}", .{ name, most });
    return number;
}

pub fn boolean(call: *Call, object: Object, name: []const u8) Failure!?bool {
    const value = object.get(name) orelse return null;
    return switch (value) {
        .null => null,
        .bool => |set| set,
        else => call.bad("{s} has to be true or false", .{name}),
    };
}

pub fn string(call: *Call, object: Object, name: []const u8) Failure!?[]const u8 {
    const value = object.get(name) orelse return null;
    return switch (value) {
        .null => null,
        .string => |given| given,
        else => call.bad("{s} has to be a string", .{name}),
    };
}

/// A list of token ids.
pub fn tokens(call: *Call, values: []const std.json.Value) Failure![]const layout.Token {
    const found = try call.memory.alloc(layout.Token, values.len);
    for (values, found) |value, *token| {
        if (value != .integer or value.integer < 0 or value.integer >= layout.vocab) {
            return call.bad("token ids have to be whole numbers from 0 to {d}", .{layout.vocab - 1});
        }
        token.* = @intCast(value.integer);
    }
    return found;
}
