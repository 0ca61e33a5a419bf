//! How every generating route runs: its body becomes a request, the request is submitted, the reply goes out whole or streamed.
//!
//! A route's file names the prefix of its ids (`id_prefix`), turns a body into what is asked for (`read`), puts a whole reply
//! into its form (`answer`), and gives its event stream as a type `Events` with `init` (before anything is sent), `begin`
//! (before the prompt is looked at: this engine sends no keepalive), `add` (for every delta) and `end`.

const std = @import("std");
const fields = @import("fields.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;
const Reply = @import("reply.zig").Reply;
const Stream = @import("stream.zig").Stream;

pub fn serve(call: *Call, comptime Route: type) Failure!void {
    const object = try call.object();
    const request = Request.create(try call.identifier(Route.id_prefix)) catch return error.OutOfMemory;
    defer request.release();
    try request.take(try Route.read(call, object));
    if (try fields.boolean(call, object, "stream") orelse false) return stream(call, object, request, Route.Events);
    var reply = try submit(call, request);
    try Route.answer(call, request, try reply.whole());
}

fn stream(call: *Call, object: std.json.ObjectMap, request: *Request, comptime Events: type) Failure!void {
    var events = try Events.init(call, request, object);
    try call.connection.beginStream();
    try events.begin();
    var reply = try submit(call, request);
    errdefer call.server.board.cancel(request); // a client that leaves may be found by a write as well as by a wait
    const finish = while (true) {
        const step = try reply.next();
        try events.add(step.delta);
        if (step.finish) |finish| break finish;
    };
    try events.end(finish);
    try call.connection.endStream();
}

/// Give a request to the scheduler. Refuses one that can never fit: the window, or all of context memory.
fn submit(call: *Call, request: *Request) Failure!Reply {
    const ask = &request.ask;
    const server = call.server;
    if (ask.max_tokens == 0) ask.max_tokens = @max(1, @min(server.options.max_tokens, server.context -| ask.prompt.len));
    const fits = ask.prompt.len + ask.max_tokens <= server.context and Stream.pagesFor(ask.*) <= server.pages;
    if (!fits) return call.refuse(.{
        .message = "the prompt and the reply do not fit the context",
        .code = "context_length_exceeded",
    });
    try server.board.submit(request);
    return .init(call, request);
}
