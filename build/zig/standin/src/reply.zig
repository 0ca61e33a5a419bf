//! A submitted request's reply, followed as it comes and split into thought, answer and tool call.

const std = @import("std");
const text = @import("text.zig");
const request_ = @import("request.zig");
const Request = request_.Request;
const Call = @import("call.zig").Call;
const Failure = @import("call.zig").Failure;

/// What one wait brought.
pub const Step = struct { delta: text.Delta, finish: ?request_.Finish };

pub const Whole = struct { reasoning: []const u8, content: []const u8, call: []const u8, finish: request_.Finish };

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
        const delta = try self.splitter.push(news.tokens);
        return switch (news.outcome) {
            .running => .{ .delta = delta, .finish = null },
            .failed => |reason| self.fail(reason),
            .finished => |finish| .{ .delta = try self.last(delta), .finish = finish },
        };
    }

    fn fail(self: *Reply, reason: []const u8) Failure {
        return self.call.refuse(.{
            .status = 500,
            .message = try std.fmt.allocPrint(self.call.memory, "engine failure: {s}", .{reason}),
            .kind = "server_error",
        });
    }

    /// The last delta, with what the splitter held back.
    fn last(self: *Reply, delta: text.Delta) error{OutOfMemory}!text.Delta {
        const rest = try self.splitter.finish();
        return .{
            .reasoning = try std.mem.concat(self.call.memory, u8, &.{ delta.reasoning, rest.reasoning }),
            .content = try std.mem.concat(self.call.memory, u8, &.{ delta.content, rest.content }),
            .call = delta.call,
        };
    }

    pub fn whole(self: *Reply) Failure!Whole {
        var parts = Parts{};
        while (true) {
            const step = try self.next();
            try parts.add(self.call.memory, step.delta);
            if (step.finish) |finish| return parts.whole(finish);
        }
    }
};

/// Deltas put together again.
pub const Parts = struct {
    reasoning: std.ArrayList(u8) = .empty,
    content: std.ArrayList(u8) = .empty,
    call: std.ArrayList(u8) = .empty,

    pub fn add(self: *Parts, memory: std.mem.Allocator, delta: text.Delta) error{OutOfMemory}!void {
        try self.reasoning.appendSlice(memory, delta.reasoning);
        try self.content.appendSlice(memory, delta.content);
        try self.call.appendSlice(memory, delta.call);
    }

    pub fn whole(self: Parts, finish: request_.Finish) Whole {
        return .{ .reasoning = self.reasoning.items, .content = self.content.items, .call = self.call.items, .finish = finish };
    }
};
