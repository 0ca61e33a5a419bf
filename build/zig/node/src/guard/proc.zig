//! Memory and pressure read from a proc tree again and again, with the files kept open.

const std = @import("std");
const sys = @import("../sys.zig");
const decide = @import("decide.zig");
const meminfo = @import("meminfo.zig");

/// One reading of the tree.
pub const Reading = struct {
    at_ns: u64,
    memory: meminfo.Memory,
    pressure: ?meminfo.Pressure,

    pub fn sample(self: Reading) decide.Sample {
        return .{ .at_ns = self.at_ns, .available_bytes = self.memory.available_bytes };
    }
};

pub const Tree = struct {
    memory: KeptFile,
    pressure: KeptFile,
    last_pressure: ?meminfo.Pressure = null,
    pressure_due_ns: u64 = 0,

    /// The kernel moves its averages every two seconds (PSI_FREQ in kernel/sched/psi.c): asking more often costs and tells
    /// nothing.
    const pressure_every_ns = 500 * std.time.ns_per_ms;

    pub fn init(root: []const u8) error{NameTooLong}!Tree {
        return .{ .memory = try .init(root, "meminfo"), .pressure = try .init(root, "pressure/memory") };
    }

    /// Null when meminfo cannot be read or is no meminfo.
    pub fn read(self: *Tree) ?Reading {
        var text: [8192]u8 = undefined;
        const memory = meminfo.memory(self.memory.read(&text) orelse return null) orelse return null;
        const at_ns = sys.monotonicNs();
        if (at_ns >= self.pressure_due_ns) {
            self.pressure_due_ns = at_ns + pressure_every_ns;
            self.last_pressure = if (self.pressure.read(&text)) |read_text| meminfo.pressure(read_text) else null;
        }
        return .{ .at_ns = at_ns, .memory = memory, .pressure = self.last_pressure };
    }
};

/// A file that stays open between reads. A file put in its place by a rename is opened anew: the old one has no name then.
const KeptFile = struct {
    path: [512]u8 = undefined,
    fd: sys.Fd = -1,

    fn init(root: []const u8, name: []const u8) error{NameTooLong}!KeptFile {
        var file: KeptFile = .{};
        _ = std.fmt.bufPrintSentinel(&file.path, "{s}/{s}", .{ root, name }, 0) catch return error.NameTooLong;
        return file;
    }

    fn read(self: *KeptFile, buffer: []u8) ?[]const u8 {
        if (!self.current()) self.reopen() catch return null;
        const length = sys.pread(self.fd, buffer, 0) catch {
            self.forget();
            return null;
        };
        return buffer[0..length];
    }

    fn current(self: *KeptFile) bool {
        if (self.fd < 0) return false;
        const found = sys.statFd(self.fd) catch return false;
        return found.nlink > 0;
    }

    fn reopen(self: *KeptFile) sys.Failed!void {
        self.forget();
        self.fd = try sys.open(@ptrCast(&self.path), .{ .CLOEXEC = true, .NONBLOCK = true });
    }

    fn forget(self: *KeptFile) void {
        if (self.fd >= 0) sys.close(self.fd);
        self.fd = -1;
    }
};
