//! One generation, shared by the thread that serves its client and the scheduler. Each holds a reference.

const std = @import("std");
const linux = std.os.linux;
const sync = @import("sync.zig");
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const Sampling = @import("sampler.zig").Sampling;
const Token = layout.Token;

pub const Finish = enum { stop, length, tool_calls };

/// What a request asks for. Its slices live in the request's own memory.
pub const Ask = struct {
    prompt: []const Token,
    topic: u64 = 0,
    /// Where the reply's assistant token stands in the prompt; null for a plain completion.
    assistant_at: ?usize = null,
    image_seed: u64 = 0,
    max_tokens: usize,
    min_tokens: usize = 0,
    ignore_end: bool = false,
    sampling: Sampling,
    thinking: bool = false,
    thinking_budget: ?usize = null,
    effort: []const u8 = "none",
    stops: []const []const u8 = &.{},
    /// Tokens that the reply has to consist of (a tool call's form); empty for free text.
    forced: []const Token = &.{},
};

pub const Counts = struct {
    cached: usize = 0,
    rounds: usize = 0,
    drafted: usize = 0,
    accepted: usize = 0,
    reasoning: usize = 0,
    submitted_ns: u64 = 0,
    started_ns: u64 = 0,
    prefilled_ns: u64 = 0,
    first_ns: u64 = 0,
    ended_ns: u64 = 0,
};

pub const Outcome = union(enum) { running, finished: Finish, failed: []const u8 };

pub const Request = struct {
    id: []const u8,
    memory: std.heap.ArenaAllocator,
    ask: Ask,
    lock: sync.Lock = .{},
    /// The reply so far, without the token that ends it.
    tokens: std.ArrayList(Token) = .empty,
    counts: Counts = .{},
    outcome: Outcome = .running,
    cancelled: std.atomic.Value(bool) = .init(false),
    references: std.atomic.Value(u32) = .init(1),
    wake_fd: i32,

    pub fn create(id: []const u8) sys.Failure!*Request {
        const wake_fd: i32 = @intCast(try sys.check(linux.eventfd(0, linux.EFD.CLOEXEC | linux.EFD.NONBLOCK)));
        const request = try sys.gpa.create(Request);
        request.* = .{ .id = "", .memory = .init(sys.gpa), .ask = undefined, .wake_fd = wake_fd };
        request.id = try request.memory.allocator().dupe(u8, id);
        return request;
    }

    /// Take what is asked for, with copies of its slices: they outlast the client's connection.
    pub fn take(self: *Request, ask: Ask) error{OutOfMemory}!void {
        const memory = self.memory.allocator();
        self.ask = ask;
        self.ask.prompt = try memory.dupe(Token, ask.prompt);
        self.ask.forced = try memory.dupe(Token, ask.forced);
        self.ask.effort = try memory.dupe(u8, ask.effort);
        const stops = try memory.alloc([]const u8, ask.stops.len);
        for (ask.stops, stops) |stop, *copy| copy.* = try memory.dupe(u8, stop);
        self.ask.stops = stops;
    }

    pub fn hold(self: *Request) void {
        _ = self.references.fetchAdd(1, .monotonic);
    }

    pub fn release(self: *Request) void {
        if (self.references.fetchSub(1, .acq_rel) > 1) return;
        sys.close(self.wake_fd);
        self.tokens.deinit(sys.gpa);
        self.memory.deinit();
        sys.gpa.destroy(self);
    }

    /// Tell the client's thread that there is something new.
    pub fn wake(self: *Request) void {
        const one: u64 = 1;
        _ = linux.write(self.wake_fd, std.mem.asBytes(&one), 8);
    }

    pub fn end(self: *Request, outcome: Outcome) void {
        self.lock.lock();
        self.outcome = outcome;
        self.counts.ended_ns = sys.nowNs();
        self.lock.unlock();
        self.wake();
    }

    pub const News = struct { tokens: []const Token, outcome: Outcome };

    /// Wait for tokens after the first `seen`, or the end. error.ClientLeft when the client goes first. The tokens are copied.
    pub fn wait(self: *Request, seen: usize, client_fd: i32, memory: std.mem.Allocator) error{ ClientLeft, OutOfMemory }!News {
        while (true) {
            self.lock.lock();
            const outcome = self.outcome;
            const fresh = memory.dupe(Token, self.tokens.items[seen..]);
            self.lock.unlock();
            const tokens = try fresh;
            if (tokens.len > 0 or outcome != .running) return .{ .tokens = tokens, .outcome = outcome };
            if (clientLeft(self.wake_fd, client_fd)) return error.ClientLeft;
        }
    }
};

const peer_closed: i16 = 0x2000; // POLLRDHUP, which std lacks

/// Wait until the request is woken; true when the client closes its connection before that.
fn clientLeft(wake_fd: i32, client_fd: i32) bool {
    const gone = peer_closed | linux.POLL.HUP | linux.POLL.ERR;
    var fds = [_]linux.pollfd{
        .{ .fd = wake_fd, .events = linux.POLL.IN, .revents = 0 },
        .{ .fd = client_fd, .events = peer_closed, .revents = 0 },
    };
    _ = sys.retry(linux.poll, .{ &fds, fds.len, -1 }) catch return true;
    if (fds[0].revents != 0) {
        var count: u64 = undefined;
        _ = linux.read(wake_fd, std.mem.asBytes(&count), 8);
        return false;
    }
    return fds[1].revents & gone != 0;
}
