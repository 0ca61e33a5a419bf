//! Hashes many files at once: each worker is a hashing thread with reading threads beside it.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const reader = @import("reader.zig");
const sha256 = @import("sha256.zig");

/// One file to hash and what came of it.
pub const Job = struct {
    path: [:0]const u8,
    size: u64 = 0,
    mode: u16 = 0,
    ino: u64 = 0,
    mtime_ns: i128 = 0,
    ctime_ns: i128 = 0,
    direct: bool = false,
    digest: sha256.Digest = undefined,
    failure: ?[]const u8 = null,
    done: std.atomic.Value(u32) = .init(0),

    /// Blocks until a worker is through with it.
    pub fn wait(self: *Job) void {
        while (self.done.load(.acquire) == 0) sys.futexWait(&self.done, 0);
    }
};

pub const Pool = struct {
    jobs: []Job,
    dir: sys.Fd,
    /// False in a tree: a name that has become a link since the walk is refused.
    follow: bool,
    backend: sha256.Backend,
    next: std.atomic.Value(usize) = .init(0),

    /// Starts `threads` workers. They end by themselves; the process does not wait for them but for its jobs.
    pub fn start(self: *Pool, threads: usize) !void {
        for (0..@min(threads, self.jobs.len)) |_| {
            const thread = try std.Thread.spawn(.{ .stack_size = stack_bytes }, work, .{self});
            thread.detach();
        }
    }

    fn work(self: *Pool) void {
        var ahead = reader.Ahead.init() catch return self.failRest("out of memory");
        var reading: [reader.lanes]std.Thread = undefined;
        var started: usize = 0;
        while (started < reader.lanes) : (started += 1) {
            const body = .{ &ahead, @as(u32, @intCast(started)) };
            reading[started] = std.Thread.spawn(.{ .stack_size = stack_bytes }, reader.Ahead.serve, body) catch break;
        }
        while (started == reader.lanes) {
            const job = self.take() orelse break;
            self.hash(job, &ahead);
            finish(job);
        } else self.failRest("no more threads");
        ahead.ask(null);
        for (reading[0..started]) |thread| thread.join();
    }

    fn take(self: *Pool) ?*Job {
        const index = self.next.fetchAdd(1, .monotonic);
        return if (index < self.jobs.len) &self.jobs[index] else null;
    }

    /// Where a worker cannot start, its share fails by name instead of waiting for ever.
    fn failRest(self: *Pool, reason: []const u8) void {
        while (self.take()) |job| {
            job.failure = reason;
            finish(job);
        }
    }

    fn hash(self: *Pool, job: *Job, ahead: *reader.Ahead) void {
        var source = reader.Source.open(self.dir, job.path, self.follow) catch return fail(job);
        defer source.close();
        const before = sys.statFd(source.fd) catch return fail(job);
        describe(job, before);
        if (before.mode & linux.S.IFMT != linux.S.IFREG) {
            job.failure = if (before.mode & linux.S.IFMT == linux.S.IFDIR) "is a folder: use --tree" else "is not a regular file";
            return;
        }
        var hasher: sha256.Sha256 = .init(self.backend);
        const small = before.size <= reader.chunk_bytes;
        const read = if (small) hashSmall(&source, &hasher, ahead) else hashBig(&source, &hasher, ahead);
        if (read) |code| {
            job.failure = sys.message(code);
            return;
        }
        job.digest = hasher.final();
        job.direct = source.direct.load(.monotonic);
        const after = sys.statFd(source.fd) catch return fail(job);
        const steady = source.offset == before.size and after.size == before.size and sameTime(after.mtime, before.mtime);
        if (!steady) job.failure = "changed while it was read";
    }
};

const stack_bytes = 256 << 10;

fn hashSmall(source: *reader.Source, hasher: *sha256.Sha256, ahead: *reader.Ahead) ?sys.Errno {
    while (true) {
        const count = source.next(ahead.scratch()) catch return sys.last;
        if (count == 0) return null;
        hasher.update(ahead.scratch()[0..count]);
        if (count < reader.chunk_bytes) return null;
    }
}

fn hashBig(source: *reader.Source, hasher: *sha256.Sha256, ahead: *reader.Ahead) ?sys.Errno {
    ahead.ask(source);
    defer ahead.leave();
    while (true) {
        const chunk = ahead.take();
        hasher.update(chunk.bytes);
        source.offset += chunk.bytes.len;
        if (chunk.last()) return chunk.failure;
        ahead.giveBack();
    }
}

fn describe(job: *Job, found: linux.Statx) void {
    job.size = found.size;
    job.mode = found.mode & 0o7777;
    job.ino = found.ino;
    job.mtime_ns = nanoseconds(found.mtime);
    job.ctime_ns = nanoseconds(found.ctime);
}

fn fail(job: *Job) void {
    job.failure = sys.message(sys.last);
}

fn finish(job: *Job) void {
    job.done.store(1, .release);
    sys.futexWake(&job.done);
}

fn sameTime(a: linux.statx_timestamp, b: linux.statx_timestamp) bool {
    return a.sec == b.sec and a.nsec == b.nsec;
}

pub fn nanoseconds(time: linux.statx_timestamp) i128 {
    return @as(i128, time.sec) * std.time.ns_per_s + time.nsec;
}
