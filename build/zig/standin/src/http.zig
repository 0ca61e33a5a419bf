//! HTTP/1.1 over one connection: read requests, write answers. No route is known here.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

const head_limit = 64 << 10;
pub const body_limit = 64 << 20;

pub const Error = error{ Closed, BadRequest, HeadTooLarge, BodyTooLarge, OutOfMemory };

pub const Request = struct {
    method: []const u8,
    path: []const u8,
    query: []const u8,
    head: []const u8,
    keep_alive: bool,
    body: []const u8,

    /// The value of the first header of this name, in any case.
    pub fn header(self: Request, name: []const u8) ?[]const u8 {
        return find(self.head, name);
    }
};

fn find(head: []const u8, name: []const u8) ?[]const u8 {
    var lines = std.mem.splitSequence(u8, head, "\r\n");
    _ = lines.next();
    while (lines.next()) |text| {
        const colon = std.mem.indexOfScalar(u8, text, ':') orelse continue;
        if (std.ascii.eqlIgnoreCase(text[0..colon], name)) return std.mem.trim(u8, text[colon + 1 ..], " \t");
    }
    return null;
}

pub const Connection = struct {
    fd: i32,
    peer: [4]u8,
    unread: std.ArrayList(u8) = .empty,
    streaming: bool = false,

    pub fn close(self: *Connection) void {
        self.unread.deinit(sys.gpa);
        sys.close(self.fd);
    }

    /// The next request; its slices live in `memory`. error.Closed when the client is done.
    pub fn next(self: *Connection, memory: std.mem.Allocator) Error!Request {
        const head_end = try self.readHead();
        const head = try memory.dupe(u8, self.unread.items[0..head_end]);
        self.consume(head_end + 4);
        var words = std.mem.splitScalar(u8, std.mem.sliceTo(head, '\r'), ' ');
        const method = words.next() orelse return error.BadRequest;
        const target = words.next() orelse return error.BadRequest;
        const version = words.next() orelse return error.BadRequest;
        if (!std.mem.startsWith(u8, version, "HTTP/1.") or target.len == 0) return error.BadRequest;
        const mark = std.mem.indexOfScalar(u8, target, '?') orelse target.len;
        const wish = find(head, "connection") orelse "";
        const old = std.mem.eql(u8, version, "HTTP/1.0");
        return .{
            .method = method,
            .path = target[0..mark],
            .query = target[@min(mark + 1, target.len)..],
            .head = head,
            .keep_alive = if (old) std.ascii.eqlIgnoreCase(wish, "keep-alive") else !std.ascii.eqlIgnoreCase(wish, "close"),
            .body = try self.readBody(head, memory),
        };
    }

    fn consume(self: *Connection, count: usize) void {
        self.unread.replaceRangeAssumeCapacity(0, count, &.{});
    }

    fn more(self: *Connection) Error!void {
        try self.unread.ensureUnusedCapacity(sys.gpa, 64 << 10);
        const room = self.unread.unusedCapacitySlice();
        const got = sys.retry(linux.recvfrom, .{ self.fd, room.ptr, room.len, 0, null, null }) catch return error.Closed;
        if (got == 0) return error.Closed;
        self.unread.items.len += got;
    }

    fn readHead(self: *Connection) Error!usize {
        var from: usize = 0;
        while (true) {
            if (std.mem.indexOfPos(u8, self.unread.items, from, "\r\n\r\n")) |at| return at;
            if (self.unread.items.len > head_limit) return error.HeadTooLarge;
            from = self.unread.items.len -| 3;
            try self.more();
        }
    }

    fn readBody(self: *Connection, head: []const u8, memory: std.mem.Allocator) Error![]const u8 {
        if (find(head, "expect")) |wish| if (std.ascii.eqlIgnoreCase(wish, "100-continue")) {
            try self.send("HTTP/1.1 100 Continue\r\n\r\n");
        };
        if (find(head, "transfer-encoding")) |coding| {
            if (!std.ascii.eqlIgnoreCase(coding, "chunked")) return error.BadRequest;
            return self.readChunks(memory);
        }
        const text = find(head, "content-length") orelse return "";
        const length = std.fmt.parseInt(usize, text, 10) catch return error.BadRequest;
        return self.readExactly(length, memory);
    }

    fn readExactly(self: *Connection, length: usize, memory: std.mem.Allocator) Error![]const u8 {
        if (length > body_limit) return error.BodyTooLarge;
        while (self.unread.items.len < length) try self.more();
        defer self.consume(length);
        return memory.dupe(u8, self.unread.items[0..length]);
    }

    fn readChunks(self: *Connection, memory: std.mem.Allocator) Error![]const u8 {
        var body: std.ArrayList(u8) = .empty;
        while (true) {
            const size_text = try self.readLine(memory);
            const digits = std.mem.trim(u8, std.mem.sliceTo(size_text, ';'), " ");
            const size = std.fmt.parseInt(usize, digits, 16) catch return error.BadRequest;
            if (size > body_limit - body.items.len) return error.BodyTooLarge;
            if (size == 0) break;
            try body.appendSlice(memory, try self.readExactly(size, memory));
            if ((try self.readLine(memory)).len != 0) return error.BadRequest;
        }
        while ((try self.readLine(memory)).len != 0) {}
        return body.items;
    }

    fn readLine(self: *Connection, memory: std.mem.Allocator) Error![]const u8 {
        while (true) {
            if (std.mem.indexOf(u8, self.unread.items, "\r\n")) |at| {
                defer self.consume(at + 2);
                return memory.dupe(u8, self.unread.items[0..at]);
            }
            if (self.unread.items.len > head_limit) return error.BadRequest;
            try self.more();
        }
    }

    pub fn send(self: *Connection, bytes: []const u8) error{Closed}!void {
        var done: usize = 0;
        while (done < bytes.len) {
            const args = .{ self.fd, bytes.ptr + done, bytes.len - done, @as(u32, linux.MSG.NOSIGNAL), null, 0 };
            done += sys.retry(linux.sendto, args) catch return error.Closed;
        }
    }

    /// A whole answer. `extra` holds further header lines, each with its line end.
    pub fn answer(
        self: *Connection,
        status: u16,
        content_type: []const u8,
        extra: []const u8,
        body: []const u8,
    ) error{Closed}!void {
        var buffer: [1024]u8 = undefined;
        const head = std.fmt.bufPrint(&buffer, "HTTP/1.1 {d} {s}\r\nContent-Type: {s}\r\nContent-Length: {d}\r\n{s}\r\n", .{
            status, phrase(status), content_type, body.len, extra,
        }) catch return error.Closed;
        try self.send(head);
        try self.send(body);
    }

    /// Begin an event stream in chunks.
    pub fn beginStream(self: *Connection) error{Closed}!void {
        self.streaming = true;
        try self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n" ++
            "Transfer-Encoding: chunked\r\n\r\n");
    }

    pub fn chunk(self: *Connection, bytes: []const u8) error{Closed}!void {
        var buffer: [32]u8 = undefined;
        try self.send(std.fmt.bufPrint(&buffer, "{x}\r\n", .{bytes.len}) catch unreachable);
        try self.send(bytes);
        try self.send("\r\n");
    }

    pub fn endStream(self: *Connection) error{Closed}!void {
        self.streaming = false;
        try self.send("0\r\n\r\n");
    }
};

fn phrase(status: u16) []const u8 {
    return switch (status) {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        else => "Internal Server Error",
    };
}
