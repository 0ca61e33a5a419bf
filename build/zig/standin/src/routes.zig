//! One connection's life: read a request, find its route, answer, again. Every refusal takes the same JSON form.

const std = @import("std");
const sys = @import("sys.zig");
const net = @import("net.zig");
const http = @import("http.zig");
const linux = std.os.linux;
const health = @import("health.zig");
const metrics = @import("metrics.zig");
const api_chat = @import("api_chat.zig");
const api_completions = @import("api_completions.zig");
const api_messages = @import("api_messages.zig");
const api_responses = @import("api_responses.zig");
const api_tokens = @import("api_tokens.zig");
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Server = @import("server.zig").Server;

const send_limit_s = 60;
const stack_bytes = 1 << 20;

const Access = enum { open, metrics, key };
const Route = struct { method: []const u8, path: []const u8, access: Access, handle: *const fn (*Call) Failure!void };
const routes = [_]Route{
    .{ .method = "GET", .path = "/health", .access = .open, .handle = health.health },
    .{ .method = "GET", .path = "/v1/models", .access = .key, .handle = health.models },
    .{ .method = "GET", .path = "/metrics", .access = .metrics, .handle = metrics.handle },
    .{ .method = "GET", .path = "/v1/metrics", .access = .metrics, .handle = metrics.handle },
    .{ .method = "GET", .path = "/memory", .access = .key, .handle = health.memoryRoute },
    .{ .method = "POST", .path = "/v1/chat/completions", .access = .key, .handle = api_chat.handle },
    .{ .method = "POST", .path = "/v1/completions", .access = .key, .handle = api_completions.handle },
    .{ .method = "POST", .path = "/v1/responses", .access = .key, .handle = api_responses.handle },
    .{ .method = "POST", .path = "/v1/messages", .access = .key, .handle = api_messages.handle },
    .{ .method = "POST", .path = "/tokenize", .access = .key, .handle = api_tokens.tokenize },
    .{ .method = "POST", .path = "/detokenize", .access = .key, .handle = api_tokens.detokenize },
};

/// Take connections for ever, a thread for each.
pub fn serve(shared: *Server, listener: i32) void {
    while (true) {
        var connection = http.Connection{ .fd = undefined, .peer = undefined };
        connection.fd = net.accept(listener, &connection.peer) catch {
            sys.sleepNs(10 * std.time.ns_per_ms);
            continue;
        };
        net.limit(connection.fd, linux.SO.SNDTIMEO, send_limit_s);
        const thread = std.Thread.spawn(.{ .stack_size = stack_bytes }, talk, .{ shared, connection }) catch {
            connection.close();
            continue;
        };
        thread.detach();
    }
}

fn talk(shared: *Server, given: http.Connection) void {
    var connection = given;
    defer connection.close();
    var memory = std.heap.ArenaAllocator.init(sys.gpa);
    defer memory.deinit();
    while (true) {
        _ = memory.reset(.free_all);
        const request = connection.next(memory.allocator()) catch |problem| {
            refuseUnread(&connection, problem);
            return;
        };
        var call = Call{ .server = shared, .connection = &connection, .request = request, .memory = memory.allocator() };
        run(&call) catch return;
        access(&call);
        if (!request.keep_alive) return;
    }
}

fn refuseUnread(connection: *http.Connection, problem: http.Error) void {
    const status: u16 = switch (problem) {
        error.BadRequest => 400,
        error.HeadTooLarge => 431,
        error.BodyTooLarge => 413,
        error.Closed, error.OutOfMemory => return,
    };
    const body = "{\"error\":{\"message\":\"the HTTP request cannot be read\"}}";
    connection.answer(status, "application/json", "Connection: close\r\n", body) catch {};
}

fn run(call: *Call) error{Gone}!void {
    dispatch(call) catch |problem| switch (problem) {
        error.Refused => refuse(call) catch return error.Gone,
        error.OutOfMemory => {
            call.refusal = .{ .status = 500, .message = "out of memory", .kind = "server_error" };
            refuse(call) catch return error.Gone;
        },
        error.Closed, error.ClientLeft => return error.Gone,
    };
}

fn dispatch(call: *Call) Failure!void {
    var known = false;
    for (routes) |route| {
        if (!std.mem.eql(u8, route.path, call.request.path)) continue;
        known = true;
        if (!std.mem.eql(u8, route.method, call.request.method)) continue;
        if (!allowed(call, route.access)) return call.refuse(.{
            .status = 401,
            .message = "the API key is missing or wrong",
            .code = "invalid_api_key",
        });
        return route.handle(call);
    }
    if (known) return call.refuse(.{ .status = 405, .message = "this path does not take this method" });
    const message = try std.fmt.allocPrint(call.memory, "unknown path {s}", .{call.request.path});
    return call.refuse(.{ .status = 404, .message = message });
}

fn allowed(call: *Call, needed: Access) bool {
    const key = call.server.api_key orelse return true;
    if (needed == .open or (needed == .metrics and call.server.options.metrics_open)) return true;
    const given = call.request.header("x-api-key") orelse blk: {
        const header = call.request.header("authorization") orelse return false;
        if (!std.ascii.startsWithIgnoreCase(header, "bearer ")) return false;
        break :blk std.mem.trim(u8, header["bearer ".len..], " ");
    };
    return given.len == key.len and differing(given, key) == 0;
}

/// The bytes in which two texts of one length differ, in a time that does not depend on them.
fn differing(left: []const u8, right: []const u8) u8 {
    var bits: u8 = 0;
    for (left, right) |one, other| bits |= one ^ other;
    return bits;
}

const Problem = struct { message: []const u8, type: []const u8, code: ?[]const u8 };

fn refuse(call: *Call) Failure!void {
    const refusal = call.refusal;
    if (refusal.status == 400) {
        call.server.board.reject();
        sys.log("refused {s}: {s}", .{ call.request.path, refusal.message });
    } else if (refusal.status == 500) sys.log("stream error: {s}", .{refusal.message});
    const body = .{ .@"error" = Problem{ .message = refusal.message, .type = refusal.kind, .code = refusal.code } };
    if (!call.connection.streaming) return call.answer(refusal.status, body);
    try call.event(null, body);
    try call.done();
    try call.connection.endStream();
}

fn access(call: *Call) void {
    const peer = call.connection.peer;
    sys.log("{d}.{d}.{d}.{d} \"{s} {s} HTTP/1.1\" {d} -", .{
        peer[0], peer[1], peer[2], peer[3], call.request.method, call.request.path, call.status,
    });
}
