//! One rank's packed weight file: raw tensors, a JSON index, u64-LE index offset, magic. Finding, checking and loading it.

const std = @import("std");
const sys = @import("sys.zig");
const layout = @import("layout.zig");

pub const magic = "TFDSRK01";
pub const Error = error{ NoRankCache, SeveralRankCaches, BadRankCache } || sys.Failure;
const index_limit = 64 << 20;
const tail_bytes = 16;

pub const Row = struct { name: []const u8, dtype: []const u8, shape: []const u64, offset: u64, bytes: u64 };

pub const RankFile = struct {
    path: [:0]const u8,
    fd: i32,
    rows: []const Row,
    index_bytes: u64,
    data_bytes: u64,

    pub fn find(self: RankFile, name: []const u8) ?Row {
        for (self.rows) |row| if (std.mem.eql(u8, row.name, name)) return row;
        return null;
    }

    /// The bytes of a tensor that must have this dtype and shape.
    pub fn load(self: RankFile, name: []const u8, dtype: []const u8, shape: []const u64) Error![]u8 {
        const row = self.find(name) orelse return error.BadRankCache;
        if (!std.mem.eql(u8, row.dtype, dtype) or !std.mem.eql(u64, row.shape, shape)) return error.BadRankCache;
        const data = try sys.gpa.alloc(u8, @intCast(row.bytes));
        sys.readAt(self.fd, data, row.offset) catch return error.BadRankCache;
        return data;
    }
};

/// Open the only file of `rank` among `world` in the folder `cache`, with its index checked.
pub fn open(cache: []const u8, rank: usize, world: usize) Error!RankFile {
    var prefix_buffer: [64]u8 = undefined;
    const prefix = std.fmt.bufPrint(&prefix_buffer, "rank{d}of{d}-", .{ rank, world }) catch unreachable;
    const names = sys.names(sys.zero(cache)) catch return error.NoRankCache;
    var found: ?[]const u8 = null;
    for (names) |name| {
        if (!std.mem.startsWith(u8, name, prefix) or !std.mem.endsWith(u8, name, ".bin")) continue;
        if (found != null) return error.SeveralRankCaches;
        found = name;
    }
    const name = found orelse return error.NoRankCache;
    return openFile(sys.join(cache, name), name[prefix.len .. name.len - ".bin".len]);
}

fn openFile(path: [:0]const u8, digest: []const u8) Error!RankFile {
    const fd = try sys.openRead(path);
    errdefer sys.close(fd);
    const length = try sys.size(fd);
    if (length < tail_bytes) return error.BadRankCache;
    var tail: [tail_bytes]u8 = undefined;
    sys.readAt(fd, &tail, length - tail_bytes) catch return error.BadRankCache;
    const index_at = std.mem.readInt(u64, tail[0..8], .little);
    if (!std.mem.eql(u8, tail[8..], magic) or index_at > length - tail_bytes) return error.BadRankCache;
    const index_bytes = length - tail_bytes - index_at;
    if (index_bytes > index_limit) return error.BadRankCache;
    const text = try sys.gpa.alloc(u8, @intCast(index_bytes));
    sys.readAt(fd, text, index_at) catch return error.BadRankCache;
    if (!std.mem.eql(u8, &shortDigest(text), digest)) return error.BadRankCache;
    return .{ .path = path, .fd = fd, .rows = try parse(text, index_at), .index_bytes = index_bytes, .data_bytes = index_at };
}

/// The first 20 hexadecimal digits of an index's sha256, as file names carry them.
pub fn shortDigest(index: []const u8) [20]u8 {
    var digest: [32]u8 = undefined;
    std.crypto.hash.sha2.Sha256.hash(index, &digest, .{});
    return std.fmt.bytesToHex(digest[0..10].*, .lower);
}

const JsonRow = struct { []const u8, []const u8, []const u64, u64, u64 };

/// Rows must follow each other from offset 0 without gaps, have at most four dimensions, and end where the index begins.
fn parse(text: []const u8, data_bytes: u64) Error![]const Row {
    const listed = std.json.parseFromSliceLeaky([]const JsonRow, sys.gpa, text, .{}) catch return error.BadRankCache;
    const rows = try sys.gpa.alloc(Row, listed.len);
    var next: u64 = 0;
    for (listed, rows) |item, *row| {
        row.* = .{ .name = item[0], .dtype = item[1], .shape = item[2], .offset = item[3], .bytes = item[4] };
        if (row.offset != next or row.shape.len > 4 or row.bytes != expectedBytes(row.*)) return error.BadRankCache;
        next += row.bytes;
    }
    if (next != data_bytes) return error.BadRankCache;
    return rows;
}

/// The bytes that dtype and shape call for; an unknown dtype calls for what no row has.
fn expectedBytes(row: Row) u64 {
    var total: u64 = itemBytes(row.dtype) orelse return std.math.maxInt(u64);
    for (row.shape) |extent| total = std.math.mul(u64, total, extent) catch return std.math.maxInt(u64);
    return total;
}

pub fn itemBytes(dtype: []const u8) ?u64 {
    const sizes = .{ .{ "uint8", 1 }, .{ "uint16", 2 }, .{ "float32", 4 } };
    inline for (sizes) |entry| if (std.mem.eql(u8, dtype, entry[0])) return entry[1];
    return null;
}
