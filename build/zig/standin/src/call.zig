//! One HTTP request on its way through a route: its JSON, its answer, its refusal.

const std = @import("std");
const http = @import("http.zig");
const Server = @import("server.zig").Server;

/// A field that is there and null: clients look for it. An optional that is null is left out.
pub const nothing: std.json.Value = .null;

pub const Failure = error{ Refused, Closed, ClientLeft, OutOfMemory };

pub const Refusal = struct {
    status: u16 = 400,
    message: []const u8 = "",
    code: ?[]const u8 = null,
    kind: []const u8 = "invalid_request_error",
};

pub const Call = struct {
    server: *Server,
    connection: *http.Connection,
    request: http.Request,
    memory: std.mem.Allocator,
    refusal: Refusal = .{},
    status: u16 = 200,

    pub fn refuse(self: *Call, refusal: Refusal) error{Refused} {
        self.refusal = refusal;
        return error.Refused;
    }

    /// Refuse with status 400.
    pub fn bad(self: *Call, comptime format: []const u8, args: anytype) error{ Refused, OutOfMemory } {
        return self.refuse(.{ .message = try std.fmt.allocPrint(self.memory, format, args) });
    }

    pub fn json(self: *Call, value: anytype) error{OutOfMemory}![]const u8 {
        return std.fmt.allocPrint(self.memory, "{f}", .{std.json.fmt(value, .{ .emit_null_optional_fields = false })});
    }

    pub fn answer(self: *Call, status: u16, value: anytype) Failure!void {
        self.status = status;
        try self.connection.answer(status, "application/json", "", try self.json(value));
    }

    /// One server-sent event, with a name where the protocol uses names.
    pub fn event(self: *Call, name: ?[]const u8, value: anytype) Failure!void {
        const data = try self.json(value);
        const body = if (name) |given|
            try std.fmt.allocPrint(self.memory, "event: {s}\ndata: {s}\n\n", .{ given, data })
        else
            try std.fmt.allocPrint(self.memory, "data: {s}\n\n", .{data});
        try self.connection.chunk(body);
    }

    /// The event that ends a stream of nameless events.
    pub fn done(self: *Call) Failure!void {
        try self.connection.chunk("data: [DONE]\n\n");
    }

    /// The body as a JSON object. Refuses a model that this server does not know.
    pub fn object(self: *Call) Failure!std.json.ObjectMap {
        const parsed = std.json.parseFromSliceLeaky(std.json.Value, self.memory, self.request.body, .{});
        const value = parsed catch |problem| switch (problem) {
            error.OutOfMemory => return error.OutOfMemory,
            else => return self.bad("the request body is not valid JSON", .{}),
        };
        if (value != .object) return self.bad("the request body is not a JSON object", .{});
        const model = value.object.get("model") orelse return value.object;
        if (model != .string) return self.bad("model has to be a string", .{});
        if (!self.server.knows(model.string)) return self.refuse(.{
            .status = 404,
            .message = try std.fmt.allocPrint(self.memory, "the model '{s}' does not exist", .{model.string}),
            .code = "model_not_found",
        });
        return value.object;
    }

    /// A new identifier with a prefix, such as chatcmpl-6ae32b100000002a.
    pub fn identifier(self: *Call, prefix: []const u8) error{OutOfMemory}![]const u8 {
        const number = self.server.next_id.fetchAdd(1, .monotonic);
        const started_s: u32 = @truncate(self.server.created_s);
        return std.fmt.allocPrint(self.memory, "{s}{x:0>8}{x:0>8}", .{ prefix, started_s, number });
    }
};
