//! Reads files without growing the page cache: O_DIRECT where the file system takes it, else buffered reads whose pages are
//! dropped behind them. Big files get a thread of their own that reads ahead into a ring while the caller hashes.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

/// One read. O_DIRECT wants offsets, lengths and memory in multiples of the device's blocks. The kernel sends all parts of one
/// read to the device at once, so a long one keeps it busy: 8 MiB was a tenth to a sixth faster than 4, and 4 than 2.
pub const chunk_bytes = 8 << 20;
const ring_slots = 4;

/// One file opened for one pass.
pub const Source = struct {
    fd: sys.Fd,
    direct: bool,
    offset: u64 = 0,

    /// Opens with O_DIRECT, or without where that is refused (tmpfs, some overlays: EINVAL).
    pub fn open(dir: sys.Fd, path: [*:0]const u8, follow: bool) sys.Failed!Source {
        const flags: linux.O = .{ .CLOEXEC = true, .NOFOLLOW = !follow, .NONBLOCK = true, .DIRECT = true };
        if (sys.openAt(dir, path, flags)) |fd| return .{ .fd = fd, .direct = true } else |err| {
            if (sys.last != .INVAL) return err;
        }
        var buffered = flags;
        buffered.DIRECT = false;
        return .{ .fd = try sys.openAt(dir, path, buffered), .direct = false };
    }

    pub fn close(self: Source) void {
        sys.close(self.fd);
    }

    /// The next bytes, fewer than the buffer only at the end. Goes over to buffered reads where a direct one is refused
    /// half-way, as after a short read that left the offset unaligned.
    pub fn next(self: *Source, buffer: []u8) sys.Failed!usize {
        var filled: usize = 0;
        while (filled < buffer.len) {
            const count = sys.pread(self.fd, buffer[filled..], self.offset) catch |err| {
                if (sys.last != .INVAL or !self.direct) return err;
                try self.leaveDirect();
                continue;
            };
            if (count == 0) break;
            if (!self.direct) self.dropBehind(count);
            filled += count;
            self.offset += count;
        }
        return filled;
    }

    fn leaveDirect(self: *Source) sys.Failed!void {
        const flags: linux.O = .{ .NONBLOCK = true };
        _ = try sys.check(linux.fcntl(self.fd, linux.F.SETFL, @as(u32, @bitCast(flags))));
        self.direct = false;
    }

    fn dropBehind(self: Source, count: usize) void {
        _ = linux.fadvise(self.fd, @intCast(self.offset), @intCast(count), linux.POSIX_FADV.DONTNEED);
    }
};

/// What the reading thread hands over: bytes of the ring, empty at the end of the file.
pub const Chunk = struct { bytes: []const u8, failure: ?sys.Errno = null };

/// A thread that reads one file after the other into a ring of buffers. One consumer; both sides wait on counters.
pub const Ahead = struct {
    memory: []align(4096) u8,
    chunks: [ring_slots]Chunk = undefined,
    /// Files asked for, chunks filled, chunks given back: each only ever grows (modulo 2^32).
    asked: std.atomic.Value(u32) = .init(0),
    filled: std.atomic.Value(u32) = .init(0),
    freed: std.atomic.Value(u32) = .init(0),
    source: ?*Source = null,

    pub fn init() sys.Failed!Ahead {
        return .{ .memory = try sys.mapBytes(ring_slots * chunk_bytes) };
    }

    /// The ring's memory as one buffer, for a caller that reads a small file itself while the thread is idle.
    pub fn scratch(self: *Ahead) []u8 {
        return self.memory[0..chunk_bytes];
    }

    /// Starts on a file; null ends the thread. The caller then takes chunks until an empty or failed one.
    pub fn ask(self: *Ahead, source: ?*Source) void {
        self.source = source;
        _ = self.asked.fetchAdd(1, .release);
        sys.futexWake(&self.asked);
    }

    pub fn take(self: *Ahead) Chunk {
        const taken = self.freed.load(.monotonic);
        waitWhile(&self.filled, taken);
        return self.chunks[taken % ring_slots];
    }

    pub fn giveBack(self: *Ahead) void {
        _ = self.freed.fetchAdd(1, .release);
        sys.futexWake(&self.freed);
    }

    /// The thread's body.
    pub fn serve(self: *Ahead) void {
        var served: u32 = 0;
        while (true) : (served +%= 1) {
            waitWhile(&self.asked, served);
            self.readAll(self.source orelse return);
        }
    }

    fn readAll(self: *Ahead, source: *Source) void {
        while (true) {
            const position = self.filled.load(.monotonic);
            waitWhile(&self.freed, position -% ring_slots);
            const slot = position % ring_slots;
            self.chunks[slot] = readChunk(source, self.memory[slot * chunk_bytes ..][0..chunk_bytes]);
            const last = self.chunks[slot].bytes.len == 0;
            _ = self.filled.fetchAdd(1, .release);
            sys.futexWake(&self.filled);
            if (last) return;
        }
    }
};

fn readChunk(source: *Source, buffer: []u8) Chunk {
    const count = source.next(buffer) catch return .{ .bytes = "", .failure = sys.last };
    return .{ .bytes = buffer[0..count] };
}

fn waitWhile(word: *std.atomic.Value(u32), value: u32) void {
    while (word.load(.acquire) == value) sys.futexWait(word, value);
}
