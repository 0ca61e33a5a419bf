//! A folder tree as a list of entries sorted by the bytes of their paths: the same list on every machine and in every locale.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const Allocator = std.mem.Allocator;

pub const Kind = enum {
    file,
    folder,
    link,
    other,

    pub fn of(mode: u16) Kind {
        return switch (mode & linux.S.IFMT) {
            linux.S.IFREG => .file,
            linux.S.IFDIR => .folder,
            linux.S.IFLNK => .link,
            else => .other,
        };
    }
};

pub const Entry = struct {
    /// Relative to the tree's root.
    path: [:0]const u8,
    kind: Kind,
    found: linux.Statx,
    /// What a link says; empty for the rest.
    target: []const u8 = "",
};

pub const Walk = struct {
    arena: Allocator,
    root: sys.Fd,
    entries: std.ArrayList(Entry) = .empty,
    /// Where the walk failed, for the error's line.
    failed_path: []const u8 = "",

    pub const Error = sys.Failed || Allocator.Error;

    /// Everything below `root`, links not followed, the root itself left out.
    pub fn run(self: *Walk) Error!void {
        try self.folder("");
        var visited: usize = 0;
        while (visited < self.entries.items.len) : (visited += 1) {
            const entry = self.entries.items[visited];
            if (entry.kind == .folder) try self.folder(entry.path);
        }
        std.mem.sort(Entry, self.entries.items, {}, byPath);
    }

    fn folder(self: *Walk, path: []const u8) Error!void {
        errdefer self.failed_path = path;
        const name = try self.arena.dupeSentinel(u8, if (path.len == 0) "." else path, 0);
        const fd = try sys.openAt(self.root, name, .{ .DIRECTORY = true, .CLOEXEC = true, .NOFOLLOW = true });
        defer sys.close(fd);
        var buffer: [32 << 10]u8 align(@alignOf(linux.dirent64)) = undefined;
        while (true) {
            const length = try sys.check(linux.getdents64(fd, &buffer, buffer.len));
            if (length == 0) return;
            try self.batch(path, buffer[0..length]);
        }
    }

    fn batch(self: *Walk, path: []const u8, records: []align(@alignOf(linux.dirent64)) const u8) Error!void {
        var at: usize = 0;
        while (at < records.len) {
            const record: *align(1) const linux.dirent64 = @ptrCast(records[at..].ptr);
            const name = std.mem.sliceTo(records[at + @offsetOf(linux.dirent64, "name") .. at + record.reclen], 0);
            at += record.reclen;
            if (std.mem.eql(u8, name, ".") or std.mem.eql(u8, name, "..")) continue;
            try self.add(path, name);
        }
    }

    fn add(self: *Walk, folder_path: []const u8, name: []const u8) Error!void {
        const separator = if (folder_path.len == 0) "" else "/";
        const path = try std.mem.concatWithSentinel(self.arena, u8, &.{ folder_path, separator, name }, 0);
        errdefer self.failed_path = path;
        const found = try sys.stat(self.root, path, linux.AT.SYMLINK_NOFOLLOW);
        var entry: Entry = .{ .path = path, .kind = .of(found.mode), .found = found };
        if (entry.kind == .link) entry.target = try self.readLink(path);
        try self.entries.append(self.arena, entry);
    }

    fn readLink(self: *Walk, path: [:0]const u8) Error![]const u8 {
        var buffer: [linux.PATH_MAX]u8 = undefined;
        const length = try sys.check(linux.readlinkat(self.root, path, &buffer, buffer.len));
        return self.arena.dupe(u8, buffer[0..length]);
    }
};

fn byPath(_: void, a: Entry, b: Entry) bool {
    return std.mem.order(u8, a.path, b.path) == .lt;
}
