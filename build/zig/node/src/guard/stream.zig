//! The sample stream: a unix socket whose clients get JSON lines. Never waits for one: what does not fit is missed and counted.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");

pub const most_clients = 8;
/// Lines a client may be behind: with the kernel's own buffer some seconds, so that what it reads late is not very old.
const backlog_bytes = 12 << 10;
const kernel_bytes = 8 << 10;
const command_bytes = 256;

/// What a client said.
pub const Command = enum { alive, bye };

pub const Client = struct {
    fd: sys.Fd = -1,
    waiting: [backlog_bytes]u8 = undefined,
    waiting_len: usize = 0,
    missed: u64 = 0,
    partial: [command_bytes]u8 = undefined,
    partial_len: usize = 0,

    /// Queues a line, after word of those missed before it.
    fn put(self: *Client, line: []const u8) void {
        var word: [48]u8 = undefined;
        const missed = std.fmt.bufPrint(&word, "{{\"missed\":{d}}}\n", .{self.missed}) catch unreachable;
        const note = if (self.missed > 0) missed else "";
        if (self.waiting_len + note.len + line.len > backlog_bytes) {
            self.missed += 1;
            return;
        }
        for ([_][]const u8{ note, line }) |part| {
            @memcpy(self.waiting[self.waiting_len..][0..part.len], part);
            self.waiting_len += part.len;
        }
        self.missed = 0;
    }

    /// Sends what the kernel takes now; false when the client is gone.
    fn flush(self: *Client) bool {
        var sent: usize = 0;
        defer {
            std.mem.copyForwards(u8, self.waiting[0 .. self.waiting_len - sent], self.waiting[sent..self.waiting_len]);
            self.waiting_len -= sent;
        }
        while (sent < self.waiting_len) {
            const rest = self.waiting[sent..self.waiting_len];
            const flags = linux.MSG.DONTWAIT | linux.MSG.NOSIGNAL;
            sent += sys.check(linux.sendto(self.fd, rest.ptr, rest.len, flags, null, 0)) catch return sys.last == .AGAIN;
        }
        return true;
    }

    /// The next command among the bytes read so far; a line that is none is passed over.
    fn command(self: *Client) ?Command {
        while (std.mem.findScalar(u8, self.partial[0..self.partial_len], '\n')) |end| {
            const said = parse(self.partial[0..end]);
            const rest = self.partial_len - end - 1;
            std.mem.copyForwards(u8, self.partial[0..rest], self.partial[end + 1 .. self.partial_len]);
            self.partial_len = rest;
            if (said) |found| return found;
        }
        return null;
    }
};

/// `{"alive": 12}` and `{"bye": true}`: one key, its value any.
fn parse(line: []const u8) ?Command {
    const text = std.mem.trim(u8, line, " \t\r");
    if (!std.mem.startsWith(u8, text, "{") or !std.mem.endsWith(u8, text, "}")) return null;
    const inner = std.mem.trim(u8, text[1 .. text.len - 1], " \t");
    inline for (.{ .{ "\"alive\"", Command.alive }, .{ "\"bye\"", Command.bye } }) |pair| {
        if (std.mem.startsWith(u8, inner, pair[0])) {
            if (std.mem.startsWith(u8, std.mem.trim(u8, inner[pair[0].len..], " \t"), ":")) return pair[1];
        }
    }
    return null;
}

pub const Stream = struct {
    fd: sys.Fd,
    path: [:0]const u8,
    clients: [most_clients]Client = @splat(.{}),

    /// Listens with mode 0600. A socket left by a dead guard is replaced, a living one's is not.
    pub fn open(path: [:0]const u8) sys.Failed!Stream {
        const kind = linux.SOCK.STREAM | linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;
        const fd: sys.Fd = @intCast(try sys.check(linux.socket(linux.AF.UNIX, kind, 0)));
        errdefer sys.close(fd);
        var address: linux.sockaddr.un = .{ .path = @splat(0) };
        @memcpy(address.path[0..path.len], path);
        removeDead(path, &address);
        const before = linux.syscall1(.umask, 0o177);
        defer _ = linux.syscall1(.umask, before);
        _ = try sys.check(linux.bind(fd, @ptrCast(&address), @sizeOf(linux.sockaddr.un)));
        _ = try sys.check(linux.listen(fd, most_clients));
        return .{ .fd = fd, .path = path };
    }

    fn removeDead(path: [:0]const u8, address: *const linux.sockaddr.un) void {
        const made = sys.check(linux.socket(linux.AF.UNIX, linux.SOCK.STREAM | linux.SOCK.CLOEXEC, 0)) catch return;
        const fd: sys.Fd = @intCast(made);
        defer sys.close(fd);
        _ = sys.check(linux.connect(fd, @ptrCast(address), @sizeOf(linux.sockaddr.un))) catch {
            if (sys.last == .CONNREFUSED) _ = linux.unlink(path);
        };
    }

    pub fn giveTo(self: Stream, uid: u32, gid: u32) sys.Failed!void {
        _ = try sys.check(linux.chown(self.path, uid, gid));
    }

    /// Takes one waiting client in, with its first line; null when there is none or no room, in which case it is turned away.
    pub fn accept(self: *Stream, hello: []const u8) ?usize {
        const flags = linux.SOCK.NONBLOCK | linux.SOCK.CLOEXEC;
        const fd: sys.Fd = @intCast(sys.check(linux.accept4(self.fd, null, null, flags)) catch return null);
        for (&self.clients, 0..) |*client, index| {
            if (client.fd >= 0) continue;
            client.* = .{ .fd = fd };
            const size: c_int = kernel_bytes;
            _ = linux.setsockopt(fd, linux.SOL.SOCKET, linux.SO.SNDBUF, std.mem.asBytes(&size), @sizeOf(c_int));
            client.put(hello);
            return index;
        }
        sys.close(fd);
        return null;
    }

    pub fn broadcast(self: *Stream, line: []const u8) void {
        for (&self.clients) |*client| {
            if (client.fd >= 0) client.put(line);
        }
    }

    pub fn flush(self: *Stream) void {
        for (&self.clients) |*client| {
            if (client.fd >= 0 and !client.flush()) self.drop(client);
        }
    }

    /// Whether no client has a line to come.
    pub fn drained(self: *const Stream) bool {
        for (&self.clients) |*client| {
            if (client.fd >= 0 and client.waiting_len > 0) return false;
        }
        return true;
    }

    /// Reads what a client has sent and calls `handle` for each command.
    pub fn listen(self: *Stream, index: usize, context: anytype, handle: fn (@TypeOf(context), Command) void) void {
        const client = &self.clients[index];
        if (client.fd < 0) return;
        const room = client.partial[client.partial_len..];
        const length = sys.check(linux.recvfrom(client.fd, room.ptr, room.len, linux.MSG.DONTWAIT, null, null)) catch {
            return if (sys.last != .AGAIN) self.drop(client);
        };
        if (length == 0) return self.drop(client); // left, or a line too long for a command
        client.partial_len += length;
        while (client.command()) |said| handle(context, said);
    }

    fn drop(_: *Stream, client: *Client) void {
        sys.close(client.fd);
        client.fd = -1;
    }

    pub fn close(self: *Stream) void {
        self.flush();
        _ = linux.unlink(self.path);
    }
};

const testing = std.testing;

test "commands" {
    try testing.expectEqual(.alive, parse("{\"alive\": 12}").?);
    try testing.expectEqual(.alive, parse(" { \"alive\" :1 }\r").?);
    try testing.expectEqual(.bye, parse("{\"bye\":true}").?);
    for ([_][]const u8{ "", "{}", "alive", "{\"alive\"}", "{\"alive", "}" }) |line| try testing.expect(parse(line) == null);
}

test "a client that does not read misses whole lines and is told how many" {
    var client: Client = .{};
    const line: [1000]u8 = @splat('x');
    for (0..20) |_| client.put(&line);
    try testing.expectEqual(8, client.missed);
    client.waiting_len = 0;
    client.put(&line);
    try testing.expectEqualStrings("{\"missed\":8}\n" ++ line, client.waiting[0..client.waiting_len]);
}
