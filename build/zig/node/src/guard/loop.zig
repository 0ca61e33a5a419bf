//! The guard's loop: one thread, one timer. Each tick reads, judges and acts first; words come after deeds.

const std = @import("std");
const linux = std.os.linux;
const sys = @import("../sys.zig");
const json = @import("../json.zig");
const calm = @import("calm.zig");
const decide = @import("decide.zig");
const proc = @import("proc.zig");
const paths = @import("paths.zig");
const record = @import("record.zig");
const stream = @import("stream.zig");
const watch = @import("watch.zig");
const Options = @import("options.zig").Options;
const Protection = @import("protect.zig").Protection;
const Rank = @import("rank.zig").Rank;
const Writer = std.Io.Writer;

/// A tick this late means that the guard itself was stopped (or the machine was): silence in that time is nobody's.
const late_ms = 1000;
/// The log does not wait longer than this for a killed rank to be dead.
const log_wait_ms = 2000;

const farewell_ms = 1000;

const left_alone = 15;

/// A signal that was sent.
const Deed = struct { action: watch.Action, at_ns: u64 };

pub const Guard = struct {
    options: Options,
    version: []const u8,
    protocol: u32,
    floor: decide.Floor,
    tree: proc.Tree,
    rank: Rank,
    watch: watch.Watch,
    stream: stream.Stream,
    ears: ?paths.Ears,
    mouths: ?paths.Mouths,
    log: record.Log = .{},
    protection: Protection,
    timer: sys.Fd = -1,
    signals: sys.Fd = -1,

    number: u64 = 0,
    slope: decide.Recent = .{},
    calm: calm.Calm = .{},
    recent: record.Recent = .{},
    recovery: decide.Recovery = .{},
    soft: bool = false,
    readable: bool = true,
    last_tick_ms: u64 = 0,
    supervisor_ms: u64 = 0,
    peer_heard: bool = false,
    acted_ns: u64 = 0,
    ended_ms: ?u64 = null,
    recovered: bool = false,
    bye: bool = false,
    interrupted: bool = false,
    leaving_ms: ?u64 = null,

    /// Timer, signals and everything else that the loop waits on. Call before memory is locked.
    pub fn arm(self: *Guard) sys.Failed!void {
        self.last_tick_ms = sys.monotonicMs();
        self.supervisor_ms = self.last_tick_ms;
        self.timer = @intCast(try sys.check(linux.timerfd_create(.MONOTONIC, .{ .NONBLOCK = true, .CLOEXEC = true })));
        const period_ms = self.options.period_ms;
        const every: linux.timespec = .{
            .sec = @intCast(period_ms / 1000),
            .nsec = @intCast(period_ms % 1000 * std.time.ns_per_ms),
        };
        const timing: linux.itimerspec = .{ .it_interval = every, .it_value = .{ .sec = 0, .nsec = 1 } };
        _ = try sys.check(linux.timerfd_settime(self.timer, .{}, &timing, null));
        var leave = linux.sigemptyset();
        linux.sigaddset(&leave, .TERM);
        linux.sigaddset(&leave, .INT);
        var blocked = leave;
        linux.sigaddset(&blocked, .HUP);
        linux.sigaddset(&blocked, .PIPE);
        _ = try sys.check(linux.sigprocmask(linux.SIG.BLOCK, &blocked, null));
        self.signals = @intCast(try sys.check(linux.signalfd(-1, &leave, linux.SFD.NONBLOCK | linux.SFD.CLOEXEC)));
    }

    /// Runs until the rank has ended and nobody needs the samples any more; the process's exit code.
    pub fn run(self: *Guard) u8 {
        var polled = [_]linux.pollfd{ on(self.timer), on(self.rank.pidfd), on(self.signals), on(self.stream.fd) };
        while (!self.finished()) {
            _ = linux.poll(&polled, polled.len, -1);
            if (polled[0].revents != 0) self.tick();
            if (polled[1].revents != 0) {
                polled[1].fd = -1;
                self.rankEnded();
            }
            if (polled[2].revents != 0) {
                polled[2].fd = -1;
                self.interrupted = true;
            }
            if (polled[3].revents != 0) self.welcome();
            self.stream.flush();
        }
        self.stream.close();
        return if (self.watch.phase == .ended) self.watch.exitCode() else left_alone;
    }

    /// Once it is time to leave, clients that still read get their last lines; for one that does not, a second is enough.
    fn finished(self: *Guard) bool {
        if (!self.interrupted and !self.lingered()) return false;
        const now_ms = sys.monotonicMs();
        const since_ms = self.leaving_ms orelse now_ms;
        self.leaving_ms = since_ms;
        return self.stream.drained() or now_ms > since_ms + farewell_ms;
    }

    fn lingered(self: *const Guard) bool {
        const ended_ms = self.ended_ms orelse return false;
        return self.bye or sys.monotonicMs() >= ended_ms + self.options.linger_s * 1000;
    }

    fn tick(self: *Guard) void {
        var expirations: [8]u8 = undefined;
        _ = sys.read(self.timer, &expirations) catch {};
        const reading = self.tree.read();
        const now_ns = sys.monotonicNs();
        const now_ms = now_ns / std.time.ns_per_ms;
        var verdict: decide.Verdict = .{ .level = .stale };
        if (reading) |r| verdict = decide.judge(self.floor, &self.slope, r.sample(), now_ns);
        const killed = if (verdict.level.kills()) self.act(.{ .now_ms = now_ms, .level = verdict.level }) else null;
        self.hear(now_ms);
        const deed = killed orelse self.act(self.facts(now_ms, verdict.level));
        self.number += 1;
        if (reading) |r| self.recent.add(.{ .number = self.number, .reading = r, .verdict = verdict, .phase = self.watch.phase });
        if (deed) |done| self.announce(done, reading);
        self.tell(reading, verdict, now_ms);
        self.afterwards(reading, now_ms);
    }

    /// Hears everybody and speaks to the peer. A rank that has ended holds nobody's lease up.
    fn hear(self: *Guard, now_ms: u64) void {
        self.forgiveOwnGap(now_ms);
        for (0..stream.most_clients) |index| self.stream.listen(index, self, obey);
        if (self.ears) |*ears| ears.listen(now_ms);
        if (self.watch.phase == .ended) return;
        if (self.mouths) |*mouths| mouths.tell(now_ms);
    }

    fn forgiveOwnGap(self: *Guard, now_ms: u64) void {
        const gap_ms = now_ms - self.last_tick_ms;
        self.last_tick_ms = now_ms;
        if (gap_ms < self.options.period_ms + late_ms) return;
        self.supervisor_ms += gap_ms;
        if (self.ears) |*ears| ears.receiver.forgive(gap_ms);
        self.say("{{\"event\":\"resumed\",\"t_ms\":{d},\"gap_ms\":{d}}}\n", .{ now_ms, gap_ms });
    }

    fn obey(self: *Guard, command: stream.Command) void {
        switch (command) {
            .alive => self.supervisor_ms = sys.monotonicMs(),
            .bye => self.bye = self.watch.phase == .ended,
        }
    }

    fn facts(self: *const Guard, now_ms: u64, level: decide.Level) watch.Facts {
        return .{
            .now_ms = now_ms,
            .level = level,
            .peer_silent = if (self.ears) |ears| ears.receiver.silent(now_ms) else false,
            .supervisor_silent = self.options.supervised and now_ms > self.supervisor_ms + self.options.orphan_s * 1000,
        };
    }

    /// What the machine calls for is done here and now; null when that is nothing, or the kernel would not.
    fn act(self: *Guard, now: watch.Facts) ?Deed {
        const action = self.watch.step(now);
        if (action == .none) return null;
        const refused = if (self.rank.signal(if (action == .kill) .KILL else .TERM)) |_| false else |_| sys.last != .SRCH;
        if (!refused) {
            const at_ns = sys.monotonicNs();
            if (action == .kill) self.rank.hurry();
            return .{ .action = action, .at_ns = at_ns };
        }
        self.say("{{\"event\":\"kill_failed\",\"t_ms\":{d},\"error\":\"{s}\"}}\n", .{ now.now_ms, sys.message(sys.last) });
        self.watch.refused();
        return null;
    }

    fn announce(self: *Guard, deed: Deed, reading: ?proc.Reading) void {
        var buffer: [512]u8 = undefined;
        var line: Writer = .fixed(&buffer);
        self.writeDeed(&line, deed, reading) catch return;
        self.stream.broadcast(line.buffered());
        if (self.acted_ns == 0) self.log.begin(line.buffered(), &self.recent, deed.at_ns) else self.log.add(line.buffered());
        self.acted_ns = deed.at_ns;
    }

    fn writeDeed(self: *const Guard, line: *Writer, deed: Deed, reading: ?proc.Reading) Writer.Error!void {
        try line.print("{{\"event\":\"{t}\",\"cause\":\"{t}\",\"t_ms\":{d}", .{
            deed.action, self.watch.cause.?, deed.at_ns / std.time.ns_per_ms,
        });
        if (reading) |r| try line.print(",\"available_bytes\":{d},\"read_to_signal_us\":{d}", .{
            r.memory.available_bytes, (deed.at_ns - r.at_ns) / std.time.ns_per_us,
        });
        try line.print(",\"pid\":{d},\"unix_s\":{d},\"launch\":", .{ self.rank.pid, sys.clockNs(.REALTIME) / std.time.ns_per_s });
        try json.string(line, self.options.launch);
        try line.writeAll("}\n");
    }

    /// The sample, where it says something new, and what changed with it.
    fn tell(self: *Guard, reading: ?proc.Reading, verdict: decide.Verdict, now_ms: u64) void {
        const readable = reading != null;
        if (readable != self.readable) {
            self.readable = readable;
            self.calm.wake();
            self.say("{{\"event\":\"{s}\",\"t_ms\":{d}}}\n", .{ if (readable) "readable" else "unreadable", now_ms });
        }
        if (reading) |r| self.tellSoft(r.memory.available_bytes, now_ms);
        self.tellPeer(now_ms);
        if (!readable) return;
        const phase = self.watch.phase;
        if (phase == .watching and !self.calm.tells(self.floor, reading.?.sample(), verdict)) return;
        var buffer: [1024]u8 = undefined;
        var line: Writer = .fixed(&buffer);
        const moment: record.Moment = .{ .number = self.number, .reading = reading.?, .verdict = verdict, .phase = phase };
        self.writeSample(&line, moment, now_ms) catch return;
        self.stream.broadcast(line.buffered());
    }

    fn tellSoft(self: *Guard, available_bytes: u64, now_ms: u64) void {
        const soft = available_bytes < self.floor.soft_bytes;
        if (soft == self.soft) return;
        self.soft = soft;
        self.say("{{\"event\":\"{s}\",\"t_ms\":{d},\"available_bytes\":{d},\"soft_bytes\":{d}}}\n", .{
            if (soft) "soft" else "soft_cleared", now_ms, available_bytes, self.floor.soft_bytes,
        });
    }

    fn tellPeer(self: *Guard, now_ms: u64) void {
        const ears = self.ears orelse return;
        if (self.peer_heard or ears.receiver.heard_ms == null) return;
        self.peer_heard = true;
        self.say("{{\"event\":\"peer_heard\",\"t_ms\":{d}}}\n", .{now_ms});
    }

    fn writeSample(self: *const Guard, line: *Writer, moment: record.Moment, now_ms: u64) Writer.Error!void {
        try line.writeAll("{");
        try moment.write(line);
        if (self.options.supervised) try line.print(",\"supervisor_age_ms\":{d}", .{now_ms -| self.supervisor_ms});
        if (self.ears) |ears| {
            try line.writeAll(",\"lease_age_ms\":");
            try age(line, ears.receiver.heard_ms, now_ms);
            try line.writeAll(",\"lease_path_age_ms\":[");
            for (ears.heard_ms[0..ears.count], 0..) |heard_ms, i| {
                if (i > 0) try line.writeAll(",");
                try age(line, heard_ms, now_ms);
            }
            try line.writeAll("]");
        }
        if (self.mouths) |mouths| {
            try line.writeAll(",\"lease_refused\":[");
            for (mouths.refused[0..mouths.count], 0..) |refused, i| {
                try line.print("{s}{d}", .{ if (i > 0) "," else "", refused });
            }
            try line.writeAll("]");
        }
        try line.writeAll("}\n");
    }

    fn age(line: *Writer, heard_ms: ?u64, now_ms: u64) Writer.Error!void {
        if (heard_ms) |ms| try line.print("{d}", .{now_ms -| ms}) else try line.writeAll("null");
    }

    fn rankEnded(self: *Guard) void {
        const now_ns = sys.monotonicNs();
        self.ended_ms = now_ns / std.time.ns_per_ms;
        self.watch.ended();
        var buffer: [256]u8 = undefined;
        var line: Writer = .fixed(&buffer);
        line.print("{{\"event\":\"dead\",\"t_ms\":{d},\"cause\":", .{self.ended_ms.?}) catch {};
        if (self.watch.cause) |cause| line.print("\"{t}\",\"us_after_signal\":{d}}}\n", .{
            cause, (now_ns - self.acted_ns) / std.time.ns_per_us,
        }) catch {} else line.writeAll("null,\"us_after_signal\":null}\n") catch {};
        self.stream.broadcast(line.buffered());
        if (self.watch.cause != null) self.log.add(line.buffered());
        self.stream.flush();
        self.writeLog();
    }

    fn writeLog(self: *Guard) void {
        if (!self.log.write()) self.say("{{\"event\":\"log_failed\",\"error\":\"{s}\"}}\n", .{sys.message(sys.last)});
    }

    /// After the rank's end memory is watched on; a kill that does not end it is logged all the same.
    fn afterwards(self: *Guard, reading: ?proc.Reading, now_ms: u64) void {
        if (self.watch.phase == .killed and now_ms > self.acted_ns / std.time.ns_per_ms + log_wait_ms) self.writeLog();
        if (self.watch.phase != .ended or self.recovered) return;
        const found = reading orelse return;
        if (!self.recovery.add(self.floor, found.sample())) return;
        self.recovered = true;
        self.say("{{\"event\":\"recovered\",\"t_ms\":{d},\"available_bytes\":{d},\"ms_after_end\":{d}}}\n", .{
            now_ms, found.memory.available_bytes, now_ms - self.ended_ms.?,
        });
    }

    fn welcome(self: *Guard) void {
        var buffer: [4096]u8 = undefined;
        var line: Writer = .fixed(&buffer);
        self.writeHello(&line) catch return;
        _ = self.stream.accept(line.buffered());
        self.calm.wake();
    }

    /// The first line of every client.
    pub fn writeHello(self: *const Guard, line: *Writer) Writer.Error!void {
        try line.print("{{\"hello\":{{\"version\":\"{s}\",\"protocol\":{d},\"guard_pid\":{d},\"pid\":{d},\"start_ticks\":{d}", .{
            self.version, self.protocol, linux.getpid(), self.rank.pid, self.options.start_ticks,
        });
        try line.writeAll(",\"launch\":");
        try json.string(line, self.options.launch);
        try line.print(",\"phase\":\"{t}\",\"cause\":", .{self.watch.phase});
        if (self.watch.cause) |cause| try line.print("\"{t}\"", .{cause}) else try line.writeAll("null");
        try line.print(",\"hard_bytes\":{d},\"soft_bytes\":{d},\"horizon_ms\":{d},\"period_ms\":{d},\"supervised\":{}", .{
            self.floor.hard_bytes,  self.floor.soft_bytes,   self.options.horizon_ms,
            self.options.period_ms, self.options.supervised,
        });
        try line.print(",\"locked\":{},\"oom_score_adj\":{d},\"scheduling\":\"{t}\",\"lease_listen\":[", .{
            self.protection.locked, self.protection.oom_score_adj, self.protection.scheduling,
        });
        if (self.ears) |ears| for (ears.bound[0..ears.count], 0..) |address, i| {
            try line.print("{s}\"{f}\"", .{ if (i > 0) "," else "", address });
        };
        try line.writeAll("]}}\n");
    }

    fn say(self: *Guard, comptime format: []const u8, values: anytype) void {
        var buffer: [256]u8 = undefined;
        var line: Writer = .fixed(&buffer);
        line.print(format, values) catch return;
        self.stream.broadcast(line.buffered());
    }

    fn on(fd: sys.Fd) linux.pollfd {
        return .{ .fd = fd, .events = linux.POLL.IN, .revents = 0 };
    }
};
