//! The system, thinly: files, clocks, output and memory maps over Linux system calls. Every failure is a Zig error.

const std = @import("std");
const linux = std.os.linux;

pub const gpa = std.heap.smp_allocator;

pub const Failure = error{
    NotFound,
    Denied,
    Refused,
    InUse,
    Closed,
    TimedOut,
    NoSpace,
    OutOfMemory,
    ReadOnly,
    Exists,
    SystemFailure,
};

/// A system call's return value, or its error by name.
pub fn check(result: usize) Failure!usize {
    return switch (linux.errno(result)) {
        .SUCCESS => result,
        .NOENT, .NOTDIR => error.NotFound,
        .ACCES, .PERM => error.Denied,
        .CONNREFUSED, .HOSTUNREACH, .NETUNREACH => error.Refused,
        .ADDRINUSE, .ADDRNOTAVAIL => error.InUse,
        .PIPE, .CONNRESET, .NOTCONN, .CONNABORTED => error.Closed,
        .TIMEDOUT, .AGAIN => error.TimedOut,
        .NOSPC, .DQUOT => error.NoSpace,
        .NOMEM => error.OutOfMemory,
        .ROFS => error.ReadOnly,
        .EXIST => error.Exists,
        else => error.SystemFailure,
    };
}

/// Like `check`, for a call that is repeated while a signal interrupts it.
pub fn retry(comptime call: anytype, args: anytype) Failure!usize {
    while (true) {
        const result = @call(.auto, call, args);
        if (linux.errno(result) != .INTR) return check(result);
    }
}

pub fn exit(status: u8) noreturn {
    linux.exit_group(status);
}

/// A program's arguments without its own name.
pub fn arguments(given: std.process.Args) []const []const u8 {
    var found: std.ArrayList([]const u8) = .empty;
    var iterator = given.iterate();
    _ = iterator.skip();
    while (iterator.next()) |arg| found.append(gpa, arg) catch fail(1, "error.OutOfMemory", .{});
    return found.items;
}

/// One formatted line to a descriptor, written in one call so that lines of several threads stay whole.
fn line(fd: i32, comptime format: []const u8, args: anytype) void {
    var buffer: [4096]u8 = undefined;
    const text = std.fmt.bufPrint(&buffer, format ++ "\n", args) catch buffer[0..];
    writeAll(fd, text) catch {};
}

pub fn out(comptime format: []const u8, args: anytype) void {
    line(1, format, args);
}

pub fn log(comptime format: []const u8, args: anytype) void {
    line(2, format, args);
}

/// Log one line and leave.
pub fn fail(status: u8, comptime format: []const u8, args: anytype) noreturn {
    log(format, args);
    exit(status);
}

pub fn writeAll(fd: i32, bytes: []const u8) Failure!void {
    var done: usize = 0;
    while (done < bytes.len) done += try retry(linux.write, .{ fd, bytes.ptr + done, bytes.len - done });
}

pub fn zero(path: []const u8) [:0]const u8 {
    return gpa.dupeSentinel(u8, path, 0) catch fail(1, "out of memory", .{});
}

pub fn join(folder: []const u8, name: []const u8) [:0]const u8 {
    return std.fmt.allocPrintSentinel(gpa, "{s}/{s}", .{ folder, name }, 0) catch fail(1, "out of memory", .{});
}

pub fn openRead(path: [:0]const u8) Failure!i32 {
    return @intCast(try retry(linux.open, .{ path.ptr, linux.O{ .ACCMODE = .RDONLY, .CLOEXEC = true }, 0 }));
}

pub fn create(path: [:0]const u8) Failure!i32 {
    const flags = linux.O{ .ACCMODE = .WRONLY, .CREAT = true, .TRUNC = true, .CLOEXEC = true };
    return @intCast(try retry(linux.open, .{ path.ptr, flags, 0o644 }));
}

pub fn close(fd: i32) void {
    _ = linux.close(fd);
}

pub fn size(fd: i32) Failure!u64 {
    const end = try check(linux.lseek(fd, 0, linux.SEEK.END));
    _ = try check(linux.lseek(fd, 0, linux.SEEK.SET));
    return end;
}

/// Fill `buffer` from `offset`; error.Closed when the file ends before it is full.
pub fn readAt(fd: i32, buffer: []u8, offset: u64) Failure!void {
    var done: usize = 0;
    while (done < buffer.len) {
        const got = try retry(linux.pread, .{ fd, buffer.ptr + done, buffer.len - done, @as(i64, @intCast(offset + done)) });
        if (got == 0) return error.Closed;
        done += got;
    }
}

/// A whole file, such as one of /proc whose size reads as 0, up to `limit` bytes.
pub fn readFile(path: [:0]const u8, limit: usize) Failure![]u8 {
    const fd = try openRead(path);
    defer close(fd);
    var bytes: std.ArrayList(u8) = .empty;
    errdefer bytes.deinit(gpa);
    while (bytes.items.len < limit) {
        try bytes.ensureUnusedCapacity(gpa, 65536);
        const room = bytes.unusedCapacitySlice();
        const got = try retry(linux.read, .{ fd, room.ptr, room.len });
        if (got == 0) break;
        bytes.items.len += got;
    }
    return bytes.items;
}

pub fn exists(path: [:0]const u8) bool {
    return linux.errno(linux.faccessat(linux.AT.FDCWD, path.ptr, 0, 0)) == .SUCCESS;
}

/// The names in a folder, without "." and "..".
pub fn names(folder: [:0]const u8) Failure![][]const u8 {
    const flags = linux.O{ .ACCMODE = .RDONLY, .DIRECTORY = true, .CLOEXEC = true };
    const fd: i32 = @intCast(try retry(linux.open, .{ folder.ptr, flags, 0 }));
    defer close(fd);
    var found: std.ArrayList([]const u8) = .empty;
    var buffer: [8192]u8 align(8) = undefined;
    while (true) {
        const got = try check(linux.getdents64(fd, &buffer, buffer.len));
        if (got == 0) return found.items;
        var at: usize = 0;
        while (at < got) {
            const length = std.mem.readInt(u16, buffer[at + 16 ..][0..2], .little);
            const name = std.mem.sliceTo(buffer[at + 19 .. at + length], 0);
            if (!std.mem.eql(u8, name, ".") and !std.mem.eql(u8, name, "..")) {
                try found.append(gpa, try gpa.dupe(u8, name));
            }
            at += length;
        }
    }
}

fn clock(id: linux.clockid_t) u64 {
    var now: linux.timespec = undefined;
    _ = linux.clock_gettime(id, &now);
    return @as(u64, @intCast(now.sec)) * std.time.ns_per_s + @as(u64, @intCast(now.nsec));
}

/// Nanoseconds since the machine started.
pub fn nowNs() u64 {
    return clock(.MONOTONIC);
}

/// Seconds since 1970.
pub fn wallS() u64 {
    return clock(.REALTIME) / std.time.ns_per_s;
}

pub fn seconds(ns: u64) f64 {
    return @as(f64, @floatFromInt(ns)) / std.time.ns_per_s;
}

pub fn timespec(ns: u64) linux.timespec {
    return .{ .sec = @intCast(ns / std.time.ns_per_s), .nsec = @intCast(ns % std.time.ns_per_s) };
}

pub fn sleepNs(ns: u64) void {
    var left = timespec(ns);
    while (linux.errno(linux.nanosleep(&left, &left)) == .INTR) {}
}

/// Address space that costs memory only where it is touched.
pub fn reserve(bytes: usize) Failure![]align(4096) u8 {
    const flags = linux.MAP{ .TYPE = .PRIVATE, .ANONYMOUS = true, .NORESERVE = true };
    const at = try check(linux.mmap(null, bytes, .{ .READ = true, .WRITE = true }, flags, -1, 0));
    return @as([*]align(4096) u8, @ptrFromInt(at))[0..bytes];
}

/// Give the memory behind whole pages back to the system; they read as zero afterwards.
pub fn release(pages: []align(4096) u8) void {
    _ = linux.madvise(pages.ptr, pages.len, linux.MADV.DONTNEED);
}
