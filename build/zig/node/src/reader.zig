//! Reads files without growing the page cache: O_DIRECT where the file system takes it, else buffered reads whose pages are
//! dropped behind them. Big files get threads of their own that read ahead into a ring while the caller hashes.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

/// One read. O_DIRECT wants offsets, lengths and memory in multiples of the device's blocks. The kernel sends all parts of one
/// read to the device at once, so a long one keeps it busy: 8 MiB was a tenth to a sixth faster than 4, and 4 than 2.
pub const chunk_bytes = 8 << 20;
const ring_slots = 4;
/// Threads that read one file, by turns: with two reads under way a device that others use too gave a third more than with one.
pub const lanes = 2;

/// One file opened for one pass. `offset`: how far it was taken, by whoever takes what was read.
pub const Source = struct {
    fd: sys.Fd,
    direct: std.atomic.Value(bool),
    offset: u64 = 0,

    /// Opens with O_DIRECT, or without where that is refused (tmpfs, some overlays: EINVAL).
    pub fn open(dir: sys.Fd, path: [*:0]const u8, follow: bool) sys.Failed!Source {
        const flags: linux.O = .{ .CLOEXEC = true, .NOFOLLOW = !follow, .NONBLOCK = true, .DIRECT = true };
        if (sys.openAt(dir, path, flags)) |fd| return .{ .fd = fd, .direct = .init(true) } else |err| {
            if (sys.last != .INVAL) return err;
        }
        var buffered = flags;
        buffered.DIRECT = false;
        return .{ .fd = try sys.openAt(dir, path, buffered), .direct = .init(false) };
    }

    pub fn close(self: Source) void {
        sys.close(self.fd);
    }

    /// The next bytes, fewer than the buffer only at the end.
    pub fn next(self: *Source, buffer: []u8) sys.Failed!usize {
        const count = try self.readAt(buffer, self.offset);
        self.offset += count;
        return count;
    }

    /// The bytes at a place, fewer than the buffer only at the end. Goes over to buffered reads where a direct one is refused
    /// half-way, as after a short read that left the offset unaligned. Safe from several threads.
    pub fn readAt(self: *Source, buffer: []u8, offset: u64) sys.Failed!usize {
        var filled: usize = 0;
        while (filled < buffer.len) {
            const count = sys.pread(self.fd, buffer[filled..], offset + filled) catch |err| {
                if (sys.last != .INVAL or !self.direct.load(.monotonic)) return err;
                try self.leaveDirect();
                continue;
            };
            if (count == 0) break;
            if (!self.direct.load(.monotonic)) self.dropBehind(offset + filled, count);
            filled += count;
        }
        return filled;
    }

    fn leaveDirect(self: *Source) sys.Failed!void {
        const flags: linux.O = .{ .NONBLOCK = true };
        _ = try sys.check(linux.fcntl(self.fd, linux.F.SETFL, @as(u32, @bitCast(flags))));
        self.direct.store(false, .monotonic);
    }

    fn dropBehind(self: *Source, offset: u64, count: usize) void {
        _ = linux.fadvise(self.fd, @intCast(offset), @intCast(count), linux.POSIX_FADV.DONTNEED);
    }
};

/// What a reading thread hands over: bytes of the ring, fewer than a chunk at the end of the file or for a failure.
pub const Chunk = struct {
    bytes: []const u8,
    failure: ?sys.Errno = null,

    pub fn last(self: Chunk) bool {
        return self.bytes.len < chunk_bytes;
    }
};

/// Threads that read one file after the other into a ring of buffers, chunk by chunk in turns. One consumer, which takes the
/// chunks of a file in order until the last.
pub const Ahead = struct {
    memory: []align(4096) u8,
    chunks: [ring_slots]Chunk = undefined,
    /// By slot, the number of the chunk that is in it, counted from 1 in each file; 0 before any.
    ready: [ring_slots]std.atomic.Value(u32) = @splat(.init(0)),
    /// Chunks of the file that may be read so far; `over` where no more are wanted.
    limit: std.atomic.Value(u32) = .init(0),
    /// Files asked for, and how often a lane was through with one: each only ever grows (modulo 2^32).
    asked: std.atomic.Value(u32) = .init(0),
    through: std.atomic.Value(u32) = .init(0),
    taken: u32 = 0,
    source: ?*Source = null,

    const over = std.math.maxInt(u32);

    pub fn init() sys.Failed!Ahead {
        return .{ .memory = try sys.mapBytes(ring_slots * chunk_bytes) };
    }

    /// The ring's memory as one buffer, for a caller that reads a small file itself while the threads are idle.
    pub fn scratch(self: *Ahead) []u8 {
        return self.memory[0..chunk_bytes];
    }

    /// Starts on a file; null ends the threads. The caller then takes chunks until the last, and ends with `leave`.
    pub fn ask(self: *Ahead, source: ?*Source) void {
        self.source = source;
        self.taken = 0;
        for (&self.ready) |*one| one.store(0, .monotonic);
        self.limit.store(ring_slots, .monotonic);
        _ = self.asked.fetchAdd(1, .release);
        sys.futexWake(&self.asked);
    }

    pub fn take(self: *Ahead) Chunk {
        const slot = self.taken % ring_slots;
        self.taken += 1;
        while (true) {
            const there = self.ready[slot].load(.acquire);
            if (there == self.taken) return self.chunks[slot];
            sys.futexWait(&self.ready[slot], there);
        }
    }

    pub fn giveBack(self: *Ahead) void {
        _ = self.limit.fetchAdd(1, .release);
        sys.futexWake(&self.limit);
    }

    /// Nothing of the file is wanted any more; comes back when no thread is at it.
    pub fn leave(self: *Ahead) void {
        self.limit.store(over, .release);
        sys.futexWake(&self.limit);
        const all = self.asked.load(.monotonic) *% lanes;
        while (true) {
            const now = self.through.load(.acquire);
            if (now == all) return;
            sys.futexWait(&self.through, now);
        }
    }

    /// The body of the thread of a lane.
    pub fn serve(self: *Ahead, lane: u32) void {
        var served: u32 = 0;
        while (true) : (served +%= 1) {
            while (self.asked.load(.acquire) == served) sys.futexWait(&self.asked, served);
            self.readLane(self.source orelse return, lane);
            _ = self.through.fetchAdd(1, .release);
            sys.futexWake(&self.through);
        }
    }

    fn readLane(self: *Ahead, source: *Source, lane: u32) void {
        var number = lane;
        while (self.mayRead(number)) : (number += lanes) {
            const slot = number % ring_slots;
            const buffer = self.memory[slot * chunk_bytes ..][0..chunk_bytes];
            const chunk = readChunk(source, buffer, @as(u64, number) * chunk_bytes);
            self.chunks[slot] = chunk;
            self.ready[slot].store(number + 1, .release);
            sys.futexWake(&self.ready[slot]);
            if (chunk.last()) return;
        }
    }

    /// Waits for a free slot; false where no more is wanted.
    fn mayRead(self: *Ahead, number: u32) bool {
        while (true) {
            const allowed = self.limit.load(.acquire);
            if (allowed == over) return false;
            if (number < allowed) return true;
            sys.futexWait(&self.limit, allowed);
        }
    }
};

fn readChunk(source: *Source, buffer: []u8, offset: u64) Chunk {
    const count = source.readAt(buffer, offset) catch return .{ .bytes = "", .failure = sys.last };
    return .{ .bytes = buffer[0..count] };
}
