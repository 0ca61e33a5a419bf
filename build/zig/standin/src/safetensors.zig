//! Reading a sharded safetensors folder: the index, each shard's header, one tensor at a time.

const std = @import("std");
const sys = @import("sys.zig");

pub const Error = error{ MissingTensor, UnexpectedLayout } || sys.Failure;
const header_limit = 16 << 20;

/// One tensor in its shard. `offset` counts from the start of the file.
pub const Tensor = struct { path: [:0]const u8, dtype: []const u8, shape: []const u64, offset: u64, bytes: u64 };

pub const Folder = struct {
    path: []const u8,
    shard_of: std.json.ObjectMap,

    pub fn open(path: []const u8) Error!Folder {
        const text = sys.readFile(sys.join(path, "model.safetensors.index.json"), header_limit) catch return error.MissingTensor;
        const index = std.json.parseFromSliceLeaky(std.json.Value, sys.gpa, text, .{}) catch return error.UnexpectedLayout;
        if (index != .object) return error.UnexpectedLayout;
        const weight_map = index.object.get("weight_map") orelse return error.UnexpectedLayout;
        if (weight_map != .object) return error.UnexpectedLayout;
        return .{ .path = path, .shard_of = weight_map.object };
    }

    /// Find a tensor and check its dtype and shape.
    pub fn tensor(self: Folder, name: []const u8, dtype: []const u8, shape: []const u64) Error!Tensor {
        const shard = self.shard_of.get(name) orelse return error.MissingTensor;
        if (shard != .string) return error.UnexpectedLayout;
        const found = try inShard(sys.join(self.path, shard.string), name);
        if (!std.mem.eql(u8, found.dtype, dtype) or !std.mem.eql(u64, found.shape, shape)) return error.UnexpectedLayout;
        return found;
    }
};

fn inShard(path: [:0]const u8, name: []const u8) Error!Tensor {
    const fd = sys.openRead(path) catch return error.MissingTensor;
    defer sys.close(fd);
    var length_bytes: [8]u8 = undefined;
    sys.readAt(fd, &length_bytes, 0) catch return error.UnexpectedLayout;
    const length = std.mem.readInt(u64, &length_bytes, .little);
    if (length > header_limit) return error.UnexpectedLayout;
    const text = try sys.gpa.alloc(u8, @intCast(length));
    sys.readAt(fd, text, 8) catch return error.UnexpectedLayout;
    const header = std.json.parseFromSliceLeaky(std.json.Value, sys.gpa, text, .{}) catch return error.UnexpectedLayout;
    if (header != .object) return error.UnexpectedLayout;
    const entry = header.object.get(name) orelse return error.MissingTensor;
    const found = try fromEntry(path, entry, 8 + length);
    if (found.offset + found.bytes > try sys.size(fd)) return error.UnexpectedLayout;
    return found;
}

const Entry = struct { dtype: []const u8, shape: []const u64, data_offsets: [2]u64 };

fn fromEntry(path: [:0]const u8, value: std.json.Value, data_at: u64) Error!Tensor {
    const entry = std.json.parseFromValueLeaky(Entry, sys.gpa, value, .{}) catch return error.UnexpectedLayout;
    if (entry.data_offsets[1] < entry.data_offsets[0]) return error.UnexpectedLayout;
    return .{
        .path = path,
        .dtype = entry.dtype,
        .shape = entry.shape,
        .offset = data_at + entry.data_offsets[0],
        .bytes = entry.data_offsets[1] - entry.data_offsets[0],
    };
}

/// All bytes of a tensor.
pub fn load(tensor: Tensor) Error![]u8 {
    const fd = try sys.openRead(tensor.path);
    defer sys.close(fd);
    const data = try sys.gpa.alloc(u8, @intCast(tensor.bytes));
    sys.readAt(fd, data, tensor.offset) catch return error.UnexpectedLayout;
    return data;
}
