//! tf-dsv41-rank-cache MODEL OUT RANK WORLD [--index-only] [--parity] [--no-dspark]: pack one rank's weight file.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const layout = @import("layout.zig");
const safetensors = @import("safetensors.zig");
const rankfile = @import("rankfile.zig");

const usage = "usage: tf-dsv41-rank-cache MODEL OUT RANK WORLD [--index-only] [--parity] [--no-dspark]";
const progress_bytes: u64 = 8 << 30;

const Job = struct {
    model: []const u8,
    out: []const u8,
    rank: usize,
    world: usize,
    index_only: bool = false,
    parity: bool = false,
    dspark: bool = true,
};

/// What goes into the file: a name, its torch dtype and shape, and how to make its bytes.
const Piece = struct {
    name: []const u8,
    dtype: []const u8,
    shape: []const u64,
    source: safetensors.Tensor,
    kind: enum { columns, whole, parity },

    fn bytes(self: Piece) u64 {
        var total = rankfile.itemBytes(self.dtype).?;
        for (self.shape) |extent| total *= extent;
        return total;
    }
};

pub fn main(init: std.process.Init.Minimal) void {
    const job = parse(init.args) orelse sys.fail(2, usage, .{});
    run(job) catch |problem| sys.fail(1, "tf-dsv41-rank-cache: rank {d} of {d} from {s} into {s}: error.{s}", .{
        job.rank, job.world, job.model, job.out, @errorName(problem),
    });
}

fn parse(args: std.process.Args) ?Job {
    var positional: [4][]const u8 = undefined;
    var count: usize = 0;
    var job = Job{ .model = "", .out = "", .rank = 0, .world = 0 };
    var iterator = args.iterate();
    _ = iterator.skip();
    while (iterator.next()) |arg| {
        if (std.mem.eql(u8, arg, "--index-only")) {
            job.index_only = true;
        } else if (std.mem.eql(u8, arg, "--parity")) {
            job.parity = true;
        } else if (std.mem.eql(u8, arg, "--no-dspark")) {
            job.dspark = false;
        } else if (std.mem.startsWith(u8, arg, "-") or count == positional.len) {
            return null;
        } else {
            positional[count] = arg;
            count += 1;
        }
    }
    if (count != positional.len) return null;
    job.model, job.out = .{ positional[0], positional[1] };
    job.rank = std.fmt.parseInt(usize, positional[2], 10) catch return null;
    job.world = std.fmt.parseInt(usize, positional[3], 10) catch return null;
    const known_world = job.world == 1 or job.world == 2 or job.world == 4;
    if (!known_world or job.rank >= job.world or (job.parity and job.world != 4)) return null;
    return job;
}

fn run(job: Job) !void {
    const pieces = try plan(job);
    const index = try indexJson(pieces);
    var data_bytes: u64 = 0;
    for (pieces) |piece| data_bytes += piece.bytes();
    const name = try std.fmt.allocPrint(sys.gpa, "rank{d}of{d}-{s}.bin", .{ job.rank, job.world, rankfile.shortDigest(index) });
    if (!job.index_only) try write(job, pieces, index, name, data_bytes);
    sys.out("{{\"file\": \"{s}\", \"entries\": {d}, \"data_bytes\": {d}, \"index_bytes\": {d}, \"rank\": {d}, \"world\": {d}, " ++
        "\"parity\": {}, \"dspark\": {}}}", .{
        name, pieces.len, data_bytes, index.len, job.rank, job.world, job.parity, job.dspark,
    });
}

fn plan(job: Job) ![]const Piece {
    const folder = try safetensors.Folder.open(job.model);
    var pieces: std.ArrayList(Piece) = .empty;
    for (layout.dense_names, layout.dense_rows) |name, rows| {
        const source = try folder.tensor(name, "U8", &.{ rows, layout.vocab });
        const shape = try sys.gpa.dupe(u64, &.{ rows, layout.columns(job.world) });
        try pieces.append(sys.gpa, .{ .name = name, .dtype = "uint8", .shape = shape, .source = source, .kind = .columns });
        if (!job.parity) continue;
        const parity = try std.fmt.allocPrint(sys.gpa, "{s}.parity", .{name});
        try pieces.append(sys.gpa, .{ .name = parity, .dtype = "uint8", .shape = shape, .source = source, .kind = .parity });
    }
    if (job.dspark) {
        const source = try folder.tensor(layout.draft_name, "U16", &.{layout.draft_rows});
        const shape = try sys.gpa.dupe(u64, &.{layout.draft_rows});
        const whole = Piece{ .name = layout.draft_name, .dtype = "uint16", .shape = shape, .source = source, .kind = .whole };
        try pieces.append(sys.gpa, whole);
    }
    return pieces.items;
}

fn indexJson(pieces: []const Piece) ![]const u8 {
    var text: std.ArrayList(u8) = .empty;
    var offset: u64 = 0;
    for (pieces, 0..) |piece, place| {
        try text.print(sys.gpa, "{s}[\"{s}\",\"{s}\",[", .{ if (place == 0) "[" else ",", piece.name, piece.dtype });
        for (piece.shape, 0..) |extent, axis| try text.print(sys.gpa, "{s}{d}", .{ if (axis == 0) "" else ",", extent });
        try text.print(sys.gpa, "],{d},{d}]", .{ offset, piece.bytes() });
        offset += piece.bytes();
    }
    try text.append(sys.gpa, ']');
    return text.items;
}

/// Written beside its place, fsynced, renamed, and the folder fsynced: the final name never shows a partial file.
fn write(job: Job, pieces: []const Piece, index: []const u8, name: []const u8, data_bytes: u64) !void {
    const out = sys.zero(job.out);
    _ = sys.check(linux.mkdir(out.ptr, 0o755)) catch |problem| if (problem != error.Exists) return problem;
    try refuseSecond(job, out);
    const partial_name = try std.fmt.allocPrint(sys.gpa, ".rank{d}of{d}.partial", .{ job.rank, job.world });
    const partial = sys.join(out, partial_name);
    const fd = try sys.create(partial);
    errdefer _ = linux.unlink(partial.ptr);
    var done: u64 = 0;
    var shown: u64 = 0;
    for (pieces) |piece| {
        const data = try make(job, piece);
        defer sys.gpa.free(data);
        try sys.writeAll(fd, data);
        done += data.len;
        if (done - shown < progress_bytes) continue;
        shown = done;
        sys.log("rank {d} of {d}: {d} of {d} MiB", .{ job.rank, job.world, done >> 20, data_bytes >> 20 });
    }
    var offset: [8]u8 = undefined;
    std.mem.writeInt(u64, &offset, data_bytes, .little);
    try sys.writeAll(fd, index);
    try sys.writeAll(fd, &offset);
    try sys.writeAll(fd, rankfile.magic);
    _ = try sys.check(linux.fsync(fd));
    sys.close(fd);
    _ = try sys.check(linux.rename(partial.ptr, sys.join(out, name).ptr));
    const folder = try sys.openRead(out);
    _ = try sys.check(linux.fsync(folder));
}

fn refuseSecond(job: Job, out: [:0]const u8) !void {
    var buffer: [64]u8 = undefined;
    const prefix = std.fmt.bufPrint(&buffer, "rank{d}of{d}-", .{ job.rank, job.world }) catch unreachable;
    for (try sys.names(out)) |name| if (std.mem.startsWith(u8, name, prefix)) return error.RankAlreadyPacked;
}

fn make(job: Job, piece: Piece) ![]u8 {
    const source = try safetensors.load(piece.source);
    if (piece.kind == .whole) return source;
    defer sys.gpa.free(source);
    const width = layout.columns(job.world);
    const rows = source.len / layout.vocab;
    const made = try sys.gpa.alloc(u8, rows * width);
    for (0..rows) |row| {
        const columns = source[row * layout.vocab ..][0..layout.vocab];
        const target = made[row * width ..][0..width];
        if (piece.kind == .columns) @memcpy(target, columns[job.rank * width ..][0..width]) else xorSlices(target, columns);
    }
    return made;
}

/// The exclusive or of every rank's slice: with it, any one lost slice follows from the other three.
fn xorSlices(target: []u8, columns: []const u8) void {
    @memset(target, 0);
    for (columns, 0..) |value, column| target[column % target.len] ^= value;
}
