//! What rank 0 tells the other ranks: frames of operations, little-endian, each frame answered by one frame of scores.
//! There is no handshake over settings: a rank whose pool, context or drafts differ refuses an operation and stays silent.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const arena = @import("arena.zig");
const Token = layout.Token;

pub const hello_magic: u32 = 0x5054_4654; // "TFTP"
pub const max_drafts = 8;
pub const max_tail_pages = (layout.window + 2 * arena.page_tokens - 2) / arena.page_tokens;
pub const frame_limit = 64 << 20;

pub const Hello = extern struct { magic: u32, rank: u32, world: u32 };

pub const Write = struct { page: u32, start: u8, tokens: []const Token };
/// Score the token at `position` and, after each draft, the next one. `pages` hold the last `layout.window` tokens before it.
pub const Score = struct { position: u32, pages: []const u32, topic: u64, since: u32, drafts: []const Token };
pub const Operation = union(enum) { write: Write, drop: u32, score: Score, end };

const Code = enum(u8) { write = 1, drop = 2, score = 3, end = 4, _ };

/// A frame being put together.
pub const Builder = struct {
    bytes: std.ArrayList(u8) = .empty,

    pub fn clear(self: *Builder) void {
        self.bytes.clearRetainingCapacity();
    }

    pub fn isEmpty(self: *const Builder) bool {
        return self.bytes.items.len == 0;
    }

    fn int(self: *Builder, comptime T: type, value: T) void {
        var raw: [@sizeOf(T)]u8 = undefined;
        std.mem.writeInt(T, &raw, value, .little);
        self.bytes.appendSlice(sys.gpa, &raw) catch
            sys.fail(1, "error.OutOfMemory: a frame of {d} bytes", .{self.bytes.items.len});
    }

    pub fn write(self: *Builder, operation: Write) void {
        self.int(u8, @backingInt(Code.write));
        self.int(u32, operation.page);
        self.int(u8, operation.start);
        self.int(u8, @intCast(operation.tokens.len));
        for (operation.tokens) |token| self.int(u16, token);
    }

    pub fn drop(self: *Builder, page: u32) void {
        self.int(u8, @backingInt(Code.drop));
        self.int(u32, page);
    }

    pub fn score(self: *Builder, operation: Score) void {
        self.int(u8, @backingInt(Code.score));
        self.int(u32, operation.position);
        self.int(u64, operation.topic);
        self.int(u32, operation.since);
        self.int(u8, @intCast(operation.pages.len));
        for (operation.pages) |page| self.int(u32, page);
        self.int(u8, @intCast(operation.drafts.len));
        for (operation.drafts) |token| self.int(u16, token);
    }

    pub fn end(self: *Builder) void {
        self.int(u8, @backingInt(Code.end));
    }
};

/// The operations of a received frame. Slices stay good until the next call.
pub const Parser = struct {
    bytes: []const u8,
    at: usize = 0,
    tokens: [256]Token = undefined,
    pages: [max_tail_pages]u32 = undefined,

    pub fn next(self: *Parser) error{BadFrame}!?Operation {
        if (self.at == self.bytes.len) return null;
        return switch (@as(Code, @fromBackingInt(@intCast(try self.int(u8))))) {
            .write => blk: {
                const page, const start = .{ try self.int(u32), try self.int(u8) };
                break :blk .{ .write = .{ .page = page, .start = start, .tokens = try self.tokenList(arena.page_tokens) } };
            },
            .drop => .{ .drop = try self.int(u32) },
            .score => .{ .score = try self.scoreOperation() },
            .end => .end,
            _ => error.BadFrame,
        };
    }

    fn scoreOperation(self: *Parser) error{BadFrame}!Score {
        const position, const topic, const since = .{ try self.int(u32), try self.int(u64), try self.int(u32) };
        const count = try self.int(u8);
        if (count > max_tail_pages) return error.BadFrame;
        for (self.pages[0..count]) |*page| page.* = try self.int(u32);
        const drafts = try self.tokenList(max_drafts);
        return .{ .position = position, .pages = self.pages[0..count], .topic = topic, .since = since, .drafts = drafts };
    }

    fn tokenList(self: *Parser, limit: usize) error{BadFrame}![]const Token {
        const count = try self.int(u8);
        if (count > limit) return error.BadFrame;
        for (self.tokens[0..count]) |*token| {
            token.* = try self.int(u16);
            if (token.* >= layout.vocab) return error.BadFrame;
        }
        return self.tokens[0..count];
    }

    fn int(self: *Parser, comptime T: type) error{BadFrame}!T {
        if (self.bytes.len - self.at < @sizeOf(T)) return error.BadFrame;
        defer self.at += @sizeOf(T);
        return std.mem.readInt(T, self.bytes[self.at..][0..@sizeOf(T)], .little);
    }
};

/// Send one frame: its length, then its bytes. Blocks for as long as the peer does not read.
pub fn send(fd: i32, bytes: []const u8) sys.Failure!void {
    var length: [4]u8 = undefined;
    std.mem.writeInt(u32, &length, @intCast(bytes.len), .little);
    try sendAll(fd, &length, linux.MSG.NOSIGNAL | linux.MSG.MORE * @as(u32, @intFromBool(bytes.len > 0)));
    try sendAll(fd, bytes, linux.MSG.NOSIGNAL);
}

fn sendAll(fd: i32, bytes: []const u8, flags: u32) sys.Failure!void {
    var done: usize = 0;
    while (done < bytes.len) done += try sys.retry(linux.sendto, .{ fd, bytes.ptr + done, bytes.len - done, flags, null, 0 });
}

/// Receive one frame into `buffer`, grown as needed. Blocks without a limit; error.Closed when the peer is gone.
pub fn receive(fd: i32, buffer: *std.ArrayList(u8)) sys.Failure![]const u8 {
    var length_bytes: [4]u8 = undefined;
    try receiveAll(fd, &length_bytes);
    const length = std.mem.readInt(u32, &length_bytes, .little);
    if (length > frame_limit) return error.SystemFailure;
    try buffer.resize(sys.gpa, length);
    try receiveAll(fd, buffer.items);
    return buffer.items;
}

pub fn receiveAll(fd: i32, buffer: []u8) sys.Failure!void {
    var done: usize = 0;
    while (done < buffer.len) {
        const got = try sys.retry(linux.recvfrom, .{ fd, buffer.ptr + done, buffer.len - done, 0, null, null });
        if (got == 0) return error.Closed;
        done += got;
    }
}
