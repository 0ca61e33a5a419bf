//! Every rank but 0: find rank 0, then do what its frames say until it ends or goes away.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const net = @import("net.zig");
const wire = @import("wire.zig");
const layout = @import("layout.zig");
const Arena = @import("arena.zig").Arena;
const page_tokens = @import("arena.zig").page_tokens;
const Model = @import("model.zig").Model;
const Token = layout.Token;

const retry_ns = 250 * std.time.ns_per_ms;

pub fn connect(address: net.Address, rank: usize, world: usize, limit_ns: u64) error{ConnectFailed}!i32 {
    const started = sys.nowNs();
    while (true) {
        if (net.connect(address)) |fd| {
            const hello = wire.Hello{ .magic = wire.hello_magic, .rank = @intCast(rank), .world = @intCast(world) };
            if (wire.send(fd, std.mem.asBytes(&hello))) |_| return fd else |_| sys.close(fd);
        } else |_| {}
        if (sys.nowNs() - started + retry_ns > limit_ns) return error.ConnectFailed;
        sys.sleepNs(retry_ns);
    }
}

pub const Follower = struct {
    model: *const Model,
    arena: Arena,
    context: usize,
    drafts: usize,
    scores: std.ArrayList(u8) = .empty,

    /// Follow until rank 0 says end. error.PeerDown when it goes without.
    pub fn follow(self: *Follower, fd: i32) error{PeerDown}!void {
        var buffer: std.ArrayList(u8) = .empty;
        while (true) {
            const frame = wire.receive(fd, &buffer) catch return error.PeerDown;
            const ended = self.obey(frame) catch |problem| {
                // No answer goes back: rank 0 waits for it without end, as two ranks with unlike settings do.
                sys.log("{{\"follow_refused\": \"{s}\"}}", .{@errorName(problem)});
                continue;
            };
            if (ended) return;
            wire.send(fd, self.scores.items) catch return error.PeerDown;
        }
    }

    fn obey(self: *Follower, frame: []const u8) !bool {
        self.scores.clearRetainingCapacity();
        var parser = wire.Parser{ .bytes = frame };
        while (try parser.next()) |operation| switch (operation) {
            .write => |write| {
                if (write.page >= self.arena.count) return error.PoolExceeded;
                if (@as(usize, write.start) + write.tokens.len > page_tokens) return error.BadFrame;
                self.arena.write(write.page, write.start, write.tokens);
            },
            .drop => |page| {
                if (page >= self.arena.count) return error.PoolExceeded;
                self.arena.drop(page);
            },
            .score => |wanted| try self.score(wanted),
            .end => return true,
        };
        return false;
    }

    fn score(self: *Follower, operation: wire.Score) !void {
        if (operation.position + operation.drafts.len > self.context) return error.ContextExceeded;
        if (operation.drafts.len > self.drafts) return error.DraftsDiffer;
        for (operation.pages) |page| if (page >= self.arena.count) return error.PoolExceeded;
        var tokens: [layout.window + wire.max_drafts]Token = undefined;
        const known = tail(self.arena, operation, &tokens);
        @memcpy(tokens[known..][0..operation.drafts.len], operation.drafts);
        var row: [layout.vocab]u32 = undefined;
        for (0..operation.drafts.len + 1) |ahead| {
            const before = newest(tokens[0 .. known + ahead]);
            const scores = row[0..self.model.width];
            self.model.score(.{ .tokens = before, .topic = operation.topic, .since = operation.since + ahead }, scores);
            for (scores) |value| {
                var raw: [4]u8 = undefined;
                std.mem.writeInt(u32, &raw, value, .little);
                try self.scores.appendSlice(sys.gpa, &raw);
            }
        }
    }
};

fn newest(tokens: []const Token) []const Token {
    return tokens[tokens.len -| layout.window..];
}

/// The last tokens before a position, read from context memory.
fn tail(arena: Arena, operation: wire.Score, tokens: *[layout.window + wire.max_drafts]Token) usize {
    const first = operation.position -| layout.window;
    const first_page = first / page_tokens;
    for (first..operation.position, 0..) |place, at| {
        tokens[at] = arena.read(operation.pages[place / page_tokens - first_page], place % page_tokens);
    }
    return operation.position - first;
}
