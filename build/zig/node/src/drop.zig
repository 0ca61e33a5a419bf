//! `drop`: give the page cache of files back, so that what we copied does not stand in the way of a load.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const json = @import("json.zig");
const out = @import("out.zig");
const walk = @import("walk.zig");
const Arguments = @import("arguments.zig").Arguments;
const Writer = std.Io.Writer;
const Allocator = std.mem.Allocator;

pub const help =
    \\usage: twinfold-node drop PATH...
    \\
    \\Writes back what is dirty (fdatasync) and drops the page cache of each file, or of every regular file below a folder; links
    \\inside a folder are not followed. Pages that somebody has mapped stay.
    \\One JSON line a PATH: path, files, bytes, pages_before and pages_after (mincore; null where the kernel does not tell because
    \\a file is neither ours nor writable to us), page_bytes, and error where a file failed.
    \\Exit: 0 done; 1 at least one error; 2 wrong usage.
    \\
;

pub fn run(arguments: *Arguments, arena: Allocator) !u8 {
    var paths: std.ArrayList([:0]const u8) = .empty;
    while (arguments.next()) |argument| {
        if (std.mem.startsWith(u8, argument, "-") and !std.mem.eql(u8, argument, "--"))
            return arguments.wrong("unknown option {s}", .{argument});
        if (!std.mem.eql(u8, argument, "--")) try paths.append(arena, argument);
    }
    if (paths.items.len == 0) return arguments.wrong("give at least one path", .{});
    const memory = try sys.mapBytes(64 << 10);
    var writer: out.FdWriter = .init(1, memory);
    var status: u8 = 0;
    for (paths.items) |path| {
        const sum = try dropPath(arena, path);
        if (sum.failure) |reason| {
            out.complain("{s}: {s}", .{ sum.failed_path, reason });
            status = 1;
        }
        try print(&writer.interface, path, sum);
        try writer.interface.flush();
    }
    return status;
}

const Sum = struct {
    files: u64 = 0,
    bytes: u64 = 0,
    pages_before: ?u64 = 0,
    pages_after: ?u64 = 0,
    failure: ?[]const u8 = null,
    failed_path: []const u8 = "",

    fn fail(self: *Sum, path: []const u8) void {
        if (self.failure != null) return;
        self.failure = sys.message(sys.last);
        self.failed_path = path;
    }
};

fn dropPath(arena: Allocator, path: [:0]const u8) !Sum {
    var sum: Sum = .{};
    const found = sys.stat(linux.AT.FDCWD, path, 0) catch {
        sum.fail(path);
        return sum;
    };
    if (walk.Kind.of(found.mode) != .folder) {
        dropFile(&sum, linux.AT.FDCWD, path, true);
        return sum;
    }
    const root = sys.open(path, .{ .DIRECTORY = true, .CLOEXEC = true }) catch {
        sum.fail(path);
        return sum;
    };
    defer sys.close(root);
    var tree: walk.Walk = .{ .arena = arena, .root = root };
    tree.run() catch |err| {
        if (err != error.SystemCall) return err;
        sum.fail(tree.failed_path);
        return sum;
    };
    for (tree.entries.items) |entry| {
        if (entry.kind == .file) dropFile(&sum, root, entry.path, false);
    }
    return sum;
}

fn dropFile(sum: *Sum, dir: sys.Fd, path: [:0]const u8, follow: bool) void {
    dropOne(sum, dir, path, follow) catch sum.fail(path);
}

fn dropOne(sum: *Sum, dir: sys.Fd, path: [:0]const u8, follow: bool) sys.Failed!void {
    const fd = try sys.openAt(dir, path, .{ .CLOEXEC = true, .NOFOLLOW = !follow, .NONBLOCK = true });
    defer sys.close(fd);
    const found = try sys.statFd(fd);
    if (walk.Kind.of(found.mode) != .file) return;
    const told = found.uid == linux.geteuid() or sys.check(linux.faccessat(dir, path, linux.W_OK, 0)) != error.SystemCall;
    sum.files += 1;
    sum.bytes += found.size;
    add(&sum.pages_before, if (told) try cachedPages(fd, found.size) else null);
    _ = try sys.check(linux.fdatasync(fd));
    _ = try sys.check(linux.fadvise(fd, 0, 0, linux.POSIX_FADV.DONTNEED));
    add(&sum.pages_after, if (told) try cachedPages(fd, found.size) else null);
}

fn add(sum: *?u64, pages: ?u64) void {
    sum.* = if (sum.* != null and pages != null) sum.*.? + pages.? else null;
}

/// Pages of the file in the page cache. Looks through a mapping of a gigabyte at a time, which reads nothing.
fn cachedPages(fd: sys.Fd, size: u64) sys.Failed!u64 {
    var pages: u64 = 0;
    var offset: u64 = 0;
    while (offset < size) : (offset += window_bytes) {
        const length: usize = @intCast(@min(window_bytes, size - offset));
        const raw = try sys.check(linux.mmap(null, length, .{ .READ = true }, .{ .TYPE = .SHARED }, fd, @intCast(offset)));
        const start: [*]u8 = @ptrFromInt(raw);
        defer _ = linux.munmap(start, length);
        const seen = resident[0 .. std.math.divCeil(usize, length, sys.pageSize()) catch unreachable];
        _ = try sys.check(linux.mincore(start, length, seen.ptr));
        for (seen) |page| pages += page & 1;
    }
    return pages;
}

const window_bytes = 128 << 20;
/// mincore's answer, a byte a page; pages are 4 KiB or larger.
var resident: [window_bytes / 4096]u8 = undefined;

fn print(writer: *Writer, path: []const u8, sum: Sum) Writer.Error!void {
    try writer.writeAll("{\"path\":");
    try json.string(writer, path);
    try writer.print(",\"files\":{d},\"bytes\":{d},\"pages_before\":{?d},\"pages_after\":{?d},\"page_bytes\":{d}", .{
        sum.files, sum.bytes, sum.pages_before, sum.pages_after, sys.pageSize(),
    });
    if (sum.failure) |reason| {
        try writer.writeAll(",\"error\":");
        try json.string(writer, reason);
    }
    try writer.writeAll("}\n");
}
