//! What every route shares: the server's settings, one call's state, refusals, and how a request is waited for.

const std = @import("std");
const sys = @import("sys.zig");
const http = @import("http.zig");
const layout = @import("layout.zig");
const text = @import("text.zig");
const Board = @import("board.zig").Board;
const Knobs = @import("knobs.zig").Knobs;
const Options = @import("options.zig").Options;
const request_ = @import("request.zig");
const Request = request_.Request;
const page_tokens = @import("arena.zig").page_tokens;
const Stream = @import("stream.zig").Stream;

pub const too_long = "the prompt and the reply do not fit the context";
pub const too_long_code = "context_length_exceeded";

pub const Server = struct {
    options: Options,
    name: []const u8,
    api_key: ?[]const u8,
    context: usize,
    world: usize,
    pages: usize,
    page_bytes: usize,
    model_bytes: u64,
    knobs: Knobs,
    board: *Board,
    created_s: u64,
    next_id: std.atomic.Value(u64) = .init(0),

    pub fn knows(self: *const Server, model: []const u8) bool {
        if (std.mem.eql(u8, model, self.name)) return true;
        for (self.options.aliases.items) |alias| if (std.mem.eql(u8, model, alias)) return true;
        return false;
    }
};

pub const Failure = error{ Refused, Closed, ClientLeft, OutOfMemory };

pub const Refusal = struct { status: u16 = 400, message: []const u8 = "", code: ?[]const u8 = null, kind: []const u8 = "invalid_request_error" };

/// One HTTP request on its way through a route.
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

    pub fn object(self: *Call) Failure!std.json.ObjectMap {
        const value = std.json.parseFromSliceLeaky(std.json.Value, self.memory, self.request.body, .{}) catch |problem| switch (problem) {
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

    /// A new identifier with a prefix, such as chatcmpl-0000002a.
    pub fn identifier(self: *Call, prefix: []const u8) error{OutOfMemory}![]const u8 {
        const number = self.server.next_id.fetchAdd(1, .monotonic);
        return std.fmt.allocPrint(self.memory, "{s}{x:0>8}{x:0>8}", .{ prefix, @as(u32, @truncate(self.server.created_s)), number });
    }

    /// Refuse what can never fit: the window, or all of context memory.
    pub fn checkFit(self: *Call, ask: request_.Ask) Failure!void {
        const fits = ask.prompt.len + ask.max_tokens <= self.server.context and Stream.pagesFor(ask) <= self.server.pages;
        if (!fits) return self.refuse(.{ .message = too_long, .code = too_long_code });
    }

    pub fn submit(self: *Call, request: *Request) Failure!void {
        try self.server.board.submit(request);
    }

    pub fn fail(self: *Call, reason: []const u8) Failure {
        return self.refuse(.{
            .status = 500,
            .message = try std.fmt.allocPrint(self.memory, "engine failure: {s}", .{reason}),
            .kind = "server_error",
        });
    }
};

/// What one wait brought.
pub const Step = struct { delta: text.Delta, finish: ?request_.Finish };

/// Follows one submitted request and splits its reply.
pub const Reply = struct {
    call: *Call,
    request: *Request,
    splitter: text.Splitter,
    seen: usize = 0,

    pub fn init(call: *Call, request: *Request) Reply {
        return .{ .call = call, .request = request, .splitter = .init(call.memory, request.ask.thinking, request.ask.stops) };
    }

    /// Wait for more. The client's leaving cancels the request; an engine failure is a refusal with status 500.
    pub fn next(self: *Reply) Failure!Step {
        const news = self.request.wait(self.seen, self.call.connection.fd, self.call.memory) catch |problem| {
            self.call.server.board.cancel(self.request);
            return problem;
        };
        self.seen += news.tokens.len;
        var delta = try self.splitter.push(news.tokens);
        switch (news.outcome) {
            .running => return .{ .delta = delta, .finish = null },
            .failed => |reason| return self.call.fail(reason),
            .finished => |finish| {
                const rest = try self.splitter.finish();
                delta.reasoning = try std.mem.concat(self.call.memory, u8, &.{ delta.reasoning, rest.reasoning });
                delta.content = try std.mem.concat(self.call.memory, u8, &.{ delta.content, rest.content });
                return .{ .delta = delta, .finish = finish };
            },
        }
    }

    pub const Whole = struct { reasoning: []const u8, content: []const u8, call: []const u8, finish: request_.Finish };

    /// The whole reply.
    pub fn whole(self: *Reply) Failure!Whole {
        var parts: [3]std.ArrayList(u8) = @splat(.empty);
        while (true) {
            const step = try self.next();
            for (&parts, [_][]const u8{ step.delta.reasoning, step.delta.content, step.delta.call }) |*part, more| {
                try part.appendSlice(self.call.memory, more);
            }
            if (step.finish) |finish| return .{
                .reasoning = parts[0].items,
                .content = parts[1].items,
                .call = parts[2].items,
                .finish = finish,
            };
        }
    }
};
