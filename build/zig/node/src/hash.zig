//! `hash`: sha256 of files or of a whole tree, as JSON lines, without growing the page cache.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const json = @import("json.zig");
const out = @import("out.zig");
const sha256 = @import("sha256.zig");
const walk = @import("walk.zig");
const pool = @import("pool.zig");
const Arguments = @import("arguments.zig").Arguments;
const Writer = std.Io.Writer;
const Allocator = std.mem.Allocator;

pub const help =
    \\usage: twinfold-node hash [--threads N] FILE...
    \\       twinfold-node hash [--threads N] --stdin0
    \\       twinfold-node hash [--threads N] [--no-content] --tree DIR
    \\
    \\sha256 of files, several at once, read with O_DIRECT by reading threads of their own; where O_DIRECT is refused, buffered,
    \\with the pages dropped again. One JSON line a file, in the order asked for.
    \\
    \\  --threads N    files at once (default: the CPUs, at most 8)
    \\  --stdin0       names from standard input, each ended by a NUL byte
    \\  --tree DIR     everything below DIR, sorted by the bytes of the path relative to it; links are not followed
    \\  --no-content   with --tree: what stat says only, nothing is read
    \\
    \\Fields: path; type file, folder, link or other; size in bytes; mode (permission bits, decimal); ino; mtime_ns; ctime_ns;
    \\target of a link; sha256 of a file; direct, whether O_DIRECT was used to the end. A file that cannot be read, or that
    \\changed while it was read, has error in place of sha256.
    \\A name that is not UTF-8 carries its odd bytes as \udc80 to \udcff, as Python's os.fsencode wants them.
    \\Exit: 0 done; 1 at least one error; 2 wrong usage.
    \\
;

const Options = struct {
    threads: usize,
    tree: ?[:0]const u8 = null,
    stdin: bool = false,
    content: bool = true,
    files: std.ArrayList([:0]const u8) = .empty,
};

pub fn run(arguments: *Arguments, arena: Allocator) !u8 {
    var options = try parse(arguments, arena);
    if (options.stdin) try readNames(arena, &options.files);
    const memory = try sys.mapBytes(256 << 10);
    var writer: out.FdWriter = .init(1, memory);
    const status = if (options.tree) |root|
        try hashTree(arena, &writer.interface, root, options)
    else
        try hashFiles(arena, &writer.interface, options);
    try writer.interface.flush();
    return status;
}

fn parse(arguments: *Arguments, arena: Allocator) !Options {
    var options: Options = .{ .threads = defaultThreads() };
    while (arguments.next()) |argument| {
        if (std.mem.eql(u8, argument, "--threads")) {
            options.threads = try arguments.number(usize, "--threads", 1, 256);
        } else if (std.mem.eql(u8, argument, "--tree")) {
            options.tree = try arguments.value("--tree");
        } else if (std.mem.eql(u8, argument, "--stdin0")) {
            options.stdin = true;
        } else if (std.mem.eql(u8, argument, "--no-content")) {
            options.content = false;
        } else if (std.mem.eql(u8, argument, "--")) {
            while (arguments.next()) |file| try options.files.append(arena, file);
        } else if (std.mem.startsWith(u8, argument, "-")) {
            return arguments.wrong("unknown option {s}", .{argument});
        } else try options.files.append(arena, argument);
    }
    const has_files = options.files.items.len > 0;
    const kinds = @as(u8, @intFromBool(options.tree != null)) + @intFromBool(options.stdin) + @intFromBool(has_files);
    if (kinds != 1) return arguments.wrong("give files, or --stdin0, or --tree DIR", .{});
    if (!options.content and options.tree == null) return arguments.wrong("--no-content goes with --tree", .{});
    return options;
}

fn defaultThreads() usize {
    return @min(8, std.Thread.getCpuCount() catch 1);
}

/// Names up to the end of standard input; the last may lack its NUL.
fn readNames(arena: Allocator, files: *std.ArrayList([:0]const u8)) !void {
    var text: std.ArrayList(u8) = .empty;
    while (true) {
        const room = try text.addManyAsSlice(arena, 64 << 10);
        const count = try sys.read(0, room);
        text.shrinkRetainingCapacity(text.items.len - room.len + count);
        if (count == 0) break;
    }
    var names = std.mem.splitScalar(u8, text.items, 0);
    while (names.next()) |name| {
        if (name.len > 0) try files.append(arena, try arena.dupeSentinel(u8, name, 0));
    }
}

fn hashFiles(arena: Allocator, writer: *Writer, options: Options) !u8 {
    const jobs = try arena.alloc(pool.Job, options.files.items.len);
    for (jobs, options.files.items) |*job, path| job.* = .{ .path = path };
    try startPool(arena, .{ .jobs = jobs, .dir = linux.AT.FDCWD, .follow = true, .backend = sha256.detect() }, options.threads);
    var tally: Tally = .{};
    for (jobs) |*job| {
        job.wait();
        tally.count(job);
        try printJob(writer, job);
        try writer.flush();
    }
    return tally.status();
}

fn hashTree(arena: Allocator, writer: *Writer, root_path: [:0]const u8, options: Options) !u8 {
    const root = sys.open(root_path, .{ .DIRECTORY = true, .CLOEXEC = true }) catch {
        out.complain("{s}: {s}", .{ root_path, sys.message(sys.last) });
        return 1;
    };
    var tree: walk.Walk = .{ .arena = arena, .root = root };
    tree.run() catch |err| {
        if (err != error.SystemCall) return err;
        out.complain("{s}/{s}: {s}", .{ root_path, tree.failed_path, sys.message(sys.last) });
        return 1;
    };
    const jobs = try treeJobs(arena, tree.entries.items, options.content);
    try startPool(arena, .{ .jobs = jobs, .dir = root, .follow = false, .backend = sha256.detect() }, options.threads);
    var tally: Tally = .{};
    var next: usize = 0;
    for (tree.entries.items) |entry| {
        if (entry.kind != .file or !options.content) {
            try printEntry(writer, entry);
            continue;
        }
        jobs[next].wait();
        tally.count(&jobs[next]);
        try printJob(writer, &jobs[next]);
        next += 1;
    }
    return tally.status();
}

/// The workers look at it once more after the last job, so it outlives whoever started it.
fn startPool(arena: Allocator, workers: pool.Pool, threads: usize) !void {
    const kept = try arena.create(pool.Pool);
    kept.* = workers;
    try kept.start(threads);
}

fn treeJobs(arena: Allocator, entries: []const walk.Entry, content: bool) ![]pool.Job {
    var jobs: std.ArrayList(pool.Job) = .empty;
    for (entries) |entry| {
        if (content and entry.kind == .file) try jobs.append(arena, .{ .path = entry.path });
    }
    return jobs.items;
}

/// Counts failures; the first one is the line on standard error.
const Tally = struct {
    failed: usize = 0,
    total: usize = 0,
    first: ?*const pool.Job = null,

    fn count(self: *Tally, job: *const pool.Job) void {
        self.total += 1;
        if (job.failure == null) return;
        self.failed += 1;
        if (self.first == null) self.first = job;
    }

    fn status(self: Tally) u8 {
        const first = self.first orelse return 0;
        out.complain("{d} of {d} files not hashed; {s}: {s}", .{ self.failed, self.total, first.path, first.failure.? });
        return 1;
    }
};

fn printJob(writer: *Writer, job: *const pool.Job) Writer.Error!void {
    try writer.writeAll("{\"path\":");
    try json.string(writer, job.path);
    if (job.failure) |reason| {
        try writer.writeAll(",\"error\":");
        try json.string(writer, reason);
        return writer.writeAll("}\n");
    }
    try writer.print(",\"type\":\"file\",\"size\":{d},\"mode\":{d},\"ino\":{d},\"mtime_ns\":{d},\"ctime_ns\":{d}", .{
        job.size, job.mode, job.ino, job.mtime_ns, job.ctime_ns,
    });
    try writer.print(",\"sha256\":\"{x}\",\"direct\":{}}}\n", .{ &job.digest, job.direct });
}

fn printEntry(writer: *Writer, entry: walk.Entry) Writer.Error!void {
    const found = entry.found;
    try writer.writeAll("{\"path\":");
    try json.string(writer, entry.path);
    try writer.print(",\"type\":\"{t}\"", .{entry.kind});
    if (entry.kind == .file) try writer.print(",\"size\":{d}", .{found.size});
    try writer.print(",\"mode\":{d},\"ino\":{d},\"mtime_ns\":{d},\"ctime_ns\":{d}", .{
        found.mode & 0o7777, found.ino, pool.nanoseconds(found.mtime), pool.nanoseconds(found.ctime),
    });
    if (entry.kind == .link) {
        try writer.writeAll(",\"target\":");
        try json.string(writer, entry.target);
    }
    try writer.writeAll("}\n");
}
