//! What rank 0 knows about its own work, behind one lock: the queue, the live requests, the totals. /health and /metrics read
//! it while a round runs or hangs.

const std = @import("std");
const sync = @import("sync.zig");
const sys = @import("sys.zig");
const Request = @import("request.zig").Request;
const Counts = @import("request.zig").Counts;

pub const max_streams = 64;
const rate_span_ns = 2 * std.time.ns_per_s;
pub const stalled_ns = 30 * std.time.ns_per_s;

pub const Histogram = struct {
    pub const bounds = [_]f64{ 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800 };
    buckets: [bounds.len]u64 = @splat(0),
    count: u64 = 0,
    sum: f64 = 0,

    pub fn observe(self: *Histogram, value: f64) void {
        for (bounds, &self.buckets) |bound, *bucket| if (value <= bound) {
            bucket.* += 1;
        };
        self.count += 1;
        self.sum += value;
    }
};

/// Tokens a second over the last seconds.
pub const Rate = struct {
    since_ns: u64 = 0,
    tokens: u64 = 0,
    last: f64 = 0,

    pub fn add(self: *Rate, tokens: u64, now_ns: u64) void {
        if (now_ns - self.since_ns > 2 * rate_span_ns) self.* = .{ .since_ns = now_ns };
        self.tokens += tokens;
        const span = now_ns - self.since_ns;
        if (span < rate_span_ns / 4) return;
        self.last = @as(f64, @floatFromInt(self.tokens)) / sys.seconds(span);
        if (span >= rate_span_ns) self.* = .{ .since_ns = now_ns, .last = self.last };
    }

    pub fn read(self: Rate, now_ns: u64) f64 {
        return if (now_ns -| self.since_ns > 2 * rate_span_ns) 0 else self.last;
    }
};

/// Totals since the start. The live ones move with every round; the ended ones when a request ends.
pub const Totals = struct {
    live_prompt: u64 = 0,
    live_completion: u64 = 0,
    ended_prompt: u64 = 0,
    ended_completion: u64 = 0,
    cached: u64 = 0,
    drafted: u64 = 0,
    accepted: u64 = 0,
    rounds: u64 = 0,
    requests: u64 = 0,
    stopped: u64 = 0,
    cut: u64 = 0,
    failed: u64 = 0,
    rejected: u64 = 0,
    disconnected: u64 = 0,
    preempted: u64 = 0,
    decode_s: f64 = 0,
    prefill_s: f64 = 0,
};

pub const Live = struct { request: *Request, progress_ns: u64, decoding: bool, generated: usize };

pub const Board = struct {
    lock: sync.Lock = .{},
    /// Moves when the queue, a cancellation or the stop flag changes.
    work: sync.Signal = .{},
    queue: std.ArrayList(*Request) = .empty,
    live: [max_streams]?Live = @splat(null),
    totals: Totals = .{},
    stopping: bool = false,
    lost_rank: ?usize = null,
    pages_used: usize = 0,
    pages_kept: usize = 0,
    pages_peak: usize = 0,
    decode_rate: Rate = .{},
    prefill_rate: Rate = .{},
    started_ns: u64,
    progress_ns: u64,
    latency: Histogram = .{},
    first_token: Histogram = .{},
    decode: Histogram = .{},
    prefill: Histogram = .{},
    per_token: Histogram = .{},

    pub fn init() Board {
        const now = sys.nowNs();
        return .{ .started_ns = now, .progress_ns = now };
    }

    /// Queue a request; the scheduler gets a reference of its own.
    pub fn submit(self: *Board, request: *Request) error{OutOfMemory}!void {
        request.counts.submitted_ns = sys.nowNs();
        request.hold();
        self.lock.lock();
        defer self.lock.unlock();
        self.queue.append(sys.gpa, request) catch |problem| {
            request.release();
            return problem;
        };
        self.totals.requests += 1;
        self.work.notify();
    }

    pub fn cancel(self: *Board, request: *Request) void {
        request.cancelled.store(true, .release);
        self.work.notify();
    }

    pub fn reject(self: *Board) void {
        self.lock.lock();
        defer self.lock.unlock();
        self.totals.rejected += 1;
    }

    pub fn addPreemption(self: *Board) void {
        self.lock.lock();
        defer self.lock.unlock();
        self.totals.preempted += 1;
    }

    pub fn stop(self: *Board) void {
        self.lock.lock();
        self.stopping = true;
        self.lock.unlock();
        self.work.notify();
    }

    /// Book an ended request. The caller holds the lock.
    pub fn observe(self: *Board, counts: Counts, prompt: usize, completion: usize) void {
        self.totals.ended_prompt += prompt;
        self.totals.ended_completion += completion;
        self.totals.cached += counts.cached;
        const prefill_s = sys.seconds(counts.prefilled_ns -| counts.started_ns);
        const decode_s = if (counts.prefilled_ns == 0) 0 else sys.seconds(counts.ended_ns -| counts.prefilled_ns);
        self.totals.prefill_s += prefill_s;
        self.totals.decode_s += decode_s;
        self.latency.observe(sys.seconds(counts.ended_ns - counts.submitted_ns));
        self.prefill.observe(prefill_s);
        self.decode.observe(decode_s);
        if (counts.first_ns == 0) return;
        self.first_token.observe(sys.seconds(counts.first_ns - counts.submitted_ns));
        if (completion < 2) return;
        self.per_token.observe(sys.seconds(counts.ended_ns - counts.first_ns) / @as(f64, @floatFromInt(completion - 1)));
    }
};
