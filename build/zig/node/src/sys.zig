//! Thin wrappers over Linux system calls: one error, with the errno kept beside it for the one line a user reads.

const std = @import("std");
const linux = std.os.linux;

pub const Fd = linux.fd_t;
pub const Errno = linux.E;

/// A system call said no; `last` holds why, for this thread.
pub const Failed = error{SystemCall};

pub threadlocal var last: Errno = .SUCCESS;

/// The value of a raw system call, or `Failed` with `last` set.
pub fn check(raw: usize) Failed!usize {
    const code = linux.errno(raw);
    if (code == .SUCCESS) return raw;
    last = code;
    return error.SystemCall;
}

/// Plain words for the errnos people meet, else the errno's own name.
pub fn message(code: Errno) []const u8 {
    return switch (code) {
        .NOENT => "no such file or folder",
        .ACCES => "permission denied",
        .PERM => "not permitted",
        .NOTDIR => "not a folder",
        .ISDIR => "is a folder",
        .LOOP => "too many symbolic links",
        .NAMETOOLONG => "name too long",
        .IO => "input/output error of the device",
        .NOSPC => "no space left on the device",
        .SRCH => "no such process",
        .ADDRINUSE => "address in use",
        .ADDRNOTAVAIL => "no interface here has that address",
        .NODEV => "no such device",
        .MSGSIZE => "message too long for the path",
        .CONNREFUSED => "connection refused",
        .NETUNREACH => "network unreachable",
        .HOSTUNREACH => "host unreachable",
        .MFILE => "too many open files",
        .NOMEM => "out of memory",
        .NOSYS => "this kernel lacks the system call",
        else => std.enums.tagName(Errno, code) orelse "unknown error",
    };
}

pub fn close(fd: Fd) void {
    _ = linux.close(fd);
}

pub fn openAt(dir: Fd, path: [*:0]const u8, flags: linux.O) Failed!Fd {
    return @intCast(try check(linux.openat(dir, path, flags, 0o600)));
}

pub fn open(path: [*:0]const u8, flags: linux.O) Failed!Fd {
    return openAt(linux.AT.FDCWD, path, flags);
}

/// Up to `buffer.len` bytes from the current position; 0 at the end. Interrupted reads are tried again.
pub fn read(fd: Fd, buffer: []u8) Failed!usize {
    while (true) {
        return check(linux.read(fd, buffer.ptr, buffer.len)) catch |err| if (last == .INTR) continue else return err;
    }
}

pub fn pread(fd: Fd, buffer: []u8, offset: u64) Failed!usize {
    while (true) {
        const raw = linux.pread(fd, buffer.ptr, buffer.len, @intCast(offset));
        return check(raw) catch |err| if (last == .INTR) continue else return err;
    }
}

pub fn writeAll(fd: Fd, bytes: []const u8) Failed!void {
    var rest = bytes;
    while (rest.len > 0) {
        const count = check(linux.write(fd, rest.ptr, rest.len)) catch |err| {
            if (last == .INTR) continue;
            return err;
        };
        rest = rest[count..];
    }
}

/// Follows a link unless `flags` holds AT.SYMLINK_NOFOLLOW; an empty path with AT.EMPTY_PATH is the descriptor itself.
pub fn stat(dir: Fd, path: [*:0]const u8, flags: u32) Failed!linux.Statx {
    var found: linux.Statx = undefined;
    _ = try check(linux.statx(dir, path, flags, linux.STATX.BASIC_STATS, &found));
    return found;
}

pub fn statFd(fd: Fd) Failed!linux.Statx {
    return stat(fd, "", linux.AT.EMPTY_PATH);
}

/// Zeroed memory of its own mapping, so aligned to a page at least. Never given back: commands are short.
pub fn mapBytes(len: usize) Failed![]align(4096) u8 {
    const kind: linux.MAP = .{ .TYPE = .PRIVATE, .ANONYMOUS = true };
    const raw = try check(linux.mmap(null, len, .{ .READ = true, .WRITE = true }, kind, -1, 0));
    const start: [*]align(4096) u8 = @ptrFromInt(raw);
    return start[0..len];
}

pub fn pageSize() usize {
    return linux.getauxval(std.elf.AT.PAGESZ);
}

/// Milliseconds of CLOCK_MONOTONIC: the clock of Python's `time.monotonic()` too.
pub fn monotonicMs() u64 {
    return monotonicNs() / std.time.ns_per_ms;
}

pub fn monotonicNs() u64 {
    return clockNs(.MONOTONIC);
}

pub fn clockNs(clock: linux.clockid_t) u64 {
    var now: linux.timespec = undefined;
    _ = linux.clock_gettime(clock, &now);
    return @as(u64, @intCast(now.sec)) * std.time.ns_per_s + @as(u64, @intCast(now.nsec));
}

/// Blocks while `word` still holds `seen`.
pub fn futexWait(word: *std.atomic.Value(u32), seen: u32) void {
    _ = linux.futex_4arg(&word.raw, .{ .cmd = .WAIT, .private = true }, seen, null);
}

pub fn futexWake(word: *std.atomic.Value(u32)) void {
    _ = linux.futex_3arg(&word.raw, .{ .cmd = .WAKE, .private = true }, std.math.maxInt(i32));
}
