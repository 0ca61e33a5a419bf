//! The last two seconds of samples, and the lines that tell of them: to the stream while it runs, to the log afterwards.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const decide = @import("decide.zig");
const proc = @import("proc.zig");
const Phase = @import("watch.zig").Phase;
const Writer = std.Io.Writer;

pub const Moment = struct {
    number: u64,
    reading: proc.Reading,
    verdict: decide.Verdict,
    phase: Phase,

    /// The inside of a sample's object, without its braces.
    pub fn write(self: Moment, line: *Writer) Writer.Error!void {
        const memory = self.reading.memory;
        try line.print("\"sample\":{d},\"t_ms\":{d},\"available_bytes\":{d},\"free_bytes\":{d}", .{
            self.number, self.reading.at_ns / std.time.ns_per_ms, memory.available_bytes, memory.free_bytes,
        });
        try share(line, "psi_some_avg10", if (self.reading.pressure) |p| p.some_avg10 else null);
        try share(line, "psi_full_avg10", if (self.reading.pressure) |p| p.full_avg10 else null);
        try line.print(",\"falling_bytes_per_s\":{d},\"to_hard_ms\":{?d}", .{
            self.verdict.fallingBytes(), self.verdict.toHardMs(),
        });
        try line.print(",\"level\":\"{t}\",\"phase\":\"{t}\"", .{ self.verdict.level, self.phase });
    }
};

fn share(line: *Writer, name: []const u8, hundredths: ?u32) Writer.Error!void {
    try line.print(",\"{s}\":", .{name});
    if (hundredths) |value| try line.print("{d}.{d:0>2}", .{ value / 100, value % 100 }) else try line.writeAll("null");
}

/// The newest moments, oldest first.
pub const Recent = struct {
    kept: [capacity]Moment = undefined,
    next: usize = 0,
    count: usize = 0,

    /// Two seconds at the shortest period.
    const capacity = 200;
    const span_ns = 2 * std.time.ns_per_s;

    pub fn add(self: *Recent, moment: Moment) void {
        self.kept[self.next] = moment;
        self.next = (self.next + 1) % capacity;
        self.count = @min(self.count + 1, capacity);
    }

    /// Lines of the last two seconds before `end_ns`.
    pub fn write(self: *const Recent, out: *Writer, end_ns: u64) Writer.Error!void {
        for (0..self.count) |age| {
            const moment = self.kept[(self.next + capacity - self.count + age) % capacity];
            if (moment.reading.at_ns + span_ns < end_ns) continue;
            try out.writeAll("{");
            try moment.write(out);
            try out.writeAll("}\n");
        }
    }
};

/// The log: written once the rank is dead, so that a slow or full disk delays no signal. Its text is made at the signal.
pub const Log = struct {
    fd: sys.Fd = -1,
    text: [64 << 10]u8 = undefined,
    length: usize = 0,

    pub fn open(path: [:0]const u8) sys.Failed!sys.Fd {
        return sys.open(path, .{ .ACCMODE = .WRONLY, .CREAT = true, .APPEND = true, .CLOEXEC = true, .NOCTTY = true });
    }

    pub fn begin(self: *Log, event: []const u8, recent: *const Recent, end_ns: u64) void {
        if (self.fd < 0) return;
        var out: Writer = .fixed(self.text[self.length..]);
        out.writeAll(event) catch {};
        recent.write(&out, end_ns) catch {};
        self.length += out.end;
    }

    pub fn add(self: *Log, event: []const u8) void {
        if (self.fd < 0) return;
        const taken = @min(event.len, self.text.len - self.length);
        @memcpy(self.text[self.length..][0..taken], event[0..taken]);
        self.length += taken;
    }

    /// To the disk; false, with the errno in `sys.last`, when it was not taken.
    pub fn write(self: *Log) bool {
        if (self.fd < 0 or self.length == 0) return true;
        defer self.length = 0;
        sys.writeAll(self.fd, self.text[0..self.length]) catch return false;
        _ = sys.check(linux.fsync(self.fd)) catch return false;
        return true;
    }
};
